"""Which queued blocks become a job."""
