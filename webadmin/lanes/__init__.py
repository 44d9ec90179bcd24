"""The four kinds of work, one app each."""
