"""The versioned catalog: repositories, branches, commits, staged entries, compaction and garbage collection."""
