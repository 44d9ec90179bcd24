"""Formats of files, as readers and writers without policy."""
