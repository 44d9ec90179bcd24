"""Planning of profile blocks: level queues with their sums, level policies, and the plan of one poll."""
