"""Operators' actions: one declaration yields the form on a page, the REST endpoint with its schema, and the command."""
