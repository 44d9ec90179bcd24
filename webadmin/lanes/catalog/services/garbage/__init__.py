"""Garbage collection: unreferenced objects, files and rows."""
