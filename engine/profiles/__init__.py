"""Profile storage: pprof in, segments and compacted blocks, and the merge between them."""
