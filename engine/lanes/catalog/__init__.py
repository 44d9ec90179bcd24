"""The catalog lane: merges staged changes of branches into immutable ranges."""
