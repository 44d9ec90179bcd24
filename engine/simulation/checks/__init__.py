"""The invariants of the compaction service, and the audit trail that they are checked against."""
