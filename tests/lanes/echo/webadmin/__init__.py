"""Django app that owns the registered text files."""
