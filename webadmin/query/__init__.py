"""Queries of stored profiles for viewers, pages and commands."""
