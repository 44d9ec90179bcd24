"""PySpark: the session, one job module per kind of merge."""
