"""The schedule in the admin."""

from webadmin.schedule.admin import jobs, limits_in_force, operations

__all__ = ["jobs", "limits_in_force", "operations"]
