"""What changes buckets' rows: each service one command, one short transaction."""
