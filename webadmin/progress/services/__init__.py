"""Write operations of progress: counting the log."""

from webadmin.progress.services.count_log import CountOutcome, count_log

__all__ = ["CountOutcome", "count_log"]
