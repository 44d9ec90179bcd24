"""The blocks of a group become one, or parts by series hash."""
