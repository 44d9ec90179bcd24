"""Branches of the catalog: staged changes are merged into immutable ranges."""
