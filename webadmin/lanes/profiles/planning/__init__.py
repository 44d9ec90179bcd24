"""How profile blocks become jobs: level queues with their sums, level policies, and the planning of one poll."""
