"""Differences between SQLite and PostgreSQL."""
