"""Pushed profiles become segments: normalised, split by label groups, interned, written."""
