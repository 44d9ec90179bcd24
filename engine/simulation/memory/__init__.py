"""The schedule and the index in memory: rows, queues, leases and removal, without a database."""
