"""Operators' actions on profiles: quarantined blocks and dead letters, deletion, level policies."""
