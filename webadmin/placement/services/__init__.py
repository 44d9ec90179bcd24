"""Use cases of placement; each runs in one transaction and leaves an audit entry where a person decided."""
