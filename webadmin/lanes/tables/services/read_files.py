"""Read the footers of files before registration, with a separate result for each file."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from engine.core.errors import BadObject
from engine.lanes.tables.plain.facts import FileFacts as Footer
from engine.lanes.tables.plain.facts import read_facts
from engine.lanes.tables.plain.manifest import FOLDER
from engine.storage import InvalidKey, ObjectStore, StorageError
from engine.storage.keys import check_key
from webadmin.lanes.tables.column_sizes import PATH_MAX
from webadmin.lanes.tables.errors import IntervalRefused
from webadmin.lanes.tables.models import DataSource
from webadmin.lanes.tables.policies import chunks_of, granularity_of

THREADS = 8
"""Number of footers read concurrently; the time is dominated by store latency."""
FIRST_TIME_MS = -62_135_596_800_000
LAST_TIME_MS = 253_370_764_799_999
"""End of the year 9998, the limit of calendar arithmetic (which begins with the year 1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedFile:
    """A file offered for registration. ``size_bytes`` and ``checksum`` (an ETag, a CRC) are optional."""

    path: str
    size_bytes: int | None = None
    checksum: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFile:
    """A file that was read: its footer, or a stable code and a message why it cannot be in the table.

    ``is_damaged`` is set if the object itself is unusable; ``error`` is then the exception of the read.
    """

    offered: OfferedFile
    footer: Footer | None = None
    code: str = ""
    message: str = ""
    is_damaged: bool = False
    error: BadObject | None = None


def read_files(source: DataSource, store: ObjectStore, offered: Sequence[OfferedFile]) -> list[ReadFile]:
    """Read the footers of these files concurrently; return the results in the given order."""
    if not offered:
        return []
    granularity = granularity_of(source.policy)

    def read(one: OfferedFile) -> ReadFile:
        result = _read(source, store, one)
        if result.footer is None:
            return result
        low, high = result.footer.min_time_ms, result.footer.max_time_ms
        assert low is not None, "checked"
        assert high is not None, "checked"
        try:
            touched = chunks_of(granularity, low, high + 1)
        except IntervalRefused as error:
            return ReadFile(offered=one, code="times_refused", message=str(error))
        if result.footer.time_nulls and len(touched) > 1:
            text = f"{result.footer.time_nulls} rows have no time, and the others lie in {len(touched)} chunks"
            return ReadFile(offered=one, code="times_refused", message=text)
        return result

    with ThreadPoolExecutor(max_workers=min(THREADS, len(offered))) as threads:
        return list(threads.map(read, offered))


def _read(source: DataSource, store: ObjectStore, one: OfferedFile) -> ReadFile:
    if refusal := path_refusal(one.path):
        return ReadFile(offered=one, code="path_refused", message=refusal)
    try:
        footer = read_facts(
            store, one.path, time_column=source.time_column, time_unit=source.time_unit, size=one.size_bytes
        )
    except BadObject as error:
        return ReadFile(offered=one, code=error.code, message=str(error), is_damaged=True, error=error)
    except StorageError as error:
        return ReadFile(offered=one, code=error.code, message=str(error))
    if not footer.rows or footer.min_time_ms is None or footer.max_time_ms is None:
        return ReadFile(offered=one, code="file_empty", message="it has no row with a time")
    if footer.min_time_ms < FIRST_TIME_MS or footer.max_time_ms > LAST_TIME_MS:
        text = f"its times reach from {footer.min_time_ms} to {footer.max_time_ms} ms: not within the years 1 to 9998"
        return ReadFile(offered=one, code="times_refused", message=text)
    return ReadFile(offered=one, footer=footer)


def path_refusal(path: str) -> str:
    """Return why no file of a table can have this path, "" if one can."""
    if len(path) > PATH_MAX:
        return f"the path has {len(path)} characters, at most {PATH_MAX} are kept"
    try:
        check_key("register", path)
    except InvalidKey as error:
        return error.reason
    if any(part.startswith(("_", ".")) for part in path.split("/")):
        return f"names that begin with '_' or '.' are not data: readers pass them over, and {FOLDER} is ours"
    return ""
