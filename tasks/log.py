"""The log of tasks and nodes: one line per use case, an event name and key-values, as JSON on standard error."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog


def configure_log(level: str) -> None:
    """Send our events and the libraries' warnings to standard error; ``level`` is a name of ``logging``."""
    number = logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
    logging.basicConfig(
        stream=sys.stderr, level=max(number, logging.WARNING), format="%(levelname)s %(name)s: %(message)s"
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _add_severity,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def _add_severity(_: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Name how grave an event is; ``level`` is a job's compaction level here."""
    event["severity"] = "error" if method == "exception" else method
    return event
