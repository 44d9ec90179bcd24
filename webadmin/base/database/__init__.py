"""What SQLite and PostgreSQL do not have in common, in one place."""
