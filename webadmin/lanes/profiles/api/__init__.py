"""Profile blocks over HTTP."""
