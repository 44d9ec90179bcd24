"""Schedule decisions: job states, order, leases, what a poll changes; all pure."""
