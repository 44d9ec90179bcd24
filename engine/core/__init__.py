"""Shared foundations of the engine: errors, ids, checksums, checked readers, text formatting, scratch folders."""
