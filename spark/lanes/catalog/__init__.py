"""Catalogs on Spark."""
