"""Merge profile blocks, dataset by dataset."""
