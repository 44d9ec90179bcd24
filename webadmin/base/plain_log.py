"""The format of the console log: one line per record, whatever text a worker or sender supplied."""

from __future__ import annotations

import logging
import re

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def escaped(text: str) -> str:
    """Return text whose control characters and line breaks are written as escapes, ``\\n`` and ``\\x1b``."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class OneLineFormatter(logging.Formatter):
    """Escape messages, so that text from clients cannot forge a record or control a terminal.

    Tracebacks keep their lines; each is escaped and indented.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (logging's name)
        record.message = escaped(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: object) -> str:  # noqa: N802  (logging's name)
        text = super().formatException(ei)  # type: ignore[arg-type]
        return "\n".join(f"  {escaped(line)}" for line in text.splitlines())
