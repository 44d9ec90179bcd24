"""Answers from stored profiles: which datasets to open, which rows count, what their stacks say."""
