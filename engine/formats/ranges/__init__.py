"""Immutable sorted files of catalog entries: blocks of entries, ranges, metaranges."""
