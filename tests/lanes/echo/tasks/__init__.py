"""Control tasks of text files."""
