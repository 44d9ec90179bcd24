"""Profile blocks in the bucket: their objects, and the recorded lineage."""
