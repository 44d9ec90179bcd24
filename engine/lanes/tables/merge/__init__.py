"""Files of a folder become fewer, sorted ones; optionally rolled up."""
