"""Logging of tasks and nodes: one JSON line per event on standard error, with an event name and key-value pairs."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog


def configure_log(level: str) -> None:
    """Log events, and warnings of libraries, to standard error; ``level`` is a level name of ``logging``."""
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
    """Add the severity of an event; the key ``level`` is already used for the compaction level of a job."""
    event["severity"] = "error" if method == "exception" else method
    return event
