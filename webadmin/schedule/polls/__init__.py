"""The reads of one poll: its snapshot, the shares of tenants, the waiting jobs."""
