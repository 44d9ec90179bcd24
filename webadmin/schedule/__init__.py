"""The schedule: the command log, queues, jobs, leases, limits."""
