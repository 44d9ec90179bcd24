"""Profile blocks are compacted by level."""
