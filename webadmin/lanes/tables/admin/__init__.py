"""Tables in the admin."""

from webadmin.lanes.tables.admin import files, tables

__all__ = ["files", "tables"]
