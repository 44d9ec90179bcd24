"""Use cases of placement; each runs in one transaction and writes an audit entry for operators' actions."""
