"""Scheduling decisions: job states, priorities, fair shares, leases and the changes of a poll. No I/O."""
