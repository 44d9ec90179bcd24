"""Readers and writers of file formats, without policy."""
