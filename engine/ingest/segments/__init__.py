"""Build segments from pushed profiles: normalise, split by label groups, intern symbols, write."""
