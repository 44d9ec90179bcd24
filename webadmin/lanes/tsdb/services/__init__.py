"""Services that change the rows of buckets: each is one command in one short transaction."""
