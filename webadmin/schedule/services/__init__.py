"""Write operations of the schedule, one module per use case."""

from webadmin.schedule.services.poll import poll

__all__ = ["poll"]
