"""Specification, plan and merge of text files."""
