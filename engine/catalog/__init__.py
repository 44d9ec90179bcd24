"""A versioned catalog: immutable sorted files of entries, staged changes over them, and the merge of both."""
