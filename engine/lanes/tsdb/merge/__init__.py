"""Merges of the blocks of a group into one block, or into partitions by series hash."""
