"""Find the files of a table in a folder or bucket: flat, or in nested folders ``key=value``.

Names that begin with ``_`` or ``.``, anywhere in the path, are not part of the table: markers, unfinished writes, and
Lithify's own ``_lithify``. All other objects are returned; reading their footers shows whether they are Parquet files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from engine.core.errors import LithifyError
from engine.storage import ObjectStore

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""The folder value of rows with a null value."""
IGNORED = ("_", ".")
PROGRESS_STEP = 1000
"""Objects between two reports of progress."""


class BadPartition(LithifyError):
    """A path's partition keys differ from those of the table's other paths; the text states the expected ones."""

    code = "bad_partition"


@dataclass(frozen=True, slots=True)
class FoundFile:
    """An object of a table: its path below the table's URL, size in bytes and last change (Unix seconds).

    ``partition`` holds the keys and values of its folders, None for a null value.
    """

    path: str
    size: int
    modified_at: float
    partition: tuple[tuple[str, str | None], ...]


def find_files(
    store: ObjectStore, *, start_after: str = "", progress: Callable[[int, str], None] = lambda seen, key: None
) -> Iterator[FoundFile]:
    """Yield the files of the table in ``store``, ordered by path, while they are listed.

    ``start_after`` is the last path of an earlier run. ``progress`` receives the number of objects seen and the last of
    them. Raises StorageError.
    """
    seen, key = 0, start_after
    for info in store.list(start_after=start_after):
        seen, key = seen + 1, info.key
        if seen % PROGRESS_STEP == 0:
            progress(seen, key)
        if not is_ignored(info.key):
            yield FoundFile(info.key, info.size, info.modified_at, partition_of(info.key))
    progress(seen, key)


def is_ignored(path: str) -> bool:
    """Return whether readers of Hive tables ignore an object: a part of its path begins with ``_`` or ``.``.

    A folder ``_key=value`` is still a partition.
    """
    *folders, name = path.split("/")
    return name.startswith(IGNORED) or any(part.startswith(IGNORED) and "=" not in part for part in folders)


def partition_of(path: str) -> tuple[tuple[str, str | None], ...]:
    """Return the keys and values of a path's folders, percent-decoded; other folders are ignored."""
    found = []
    for part in path.split("/")[:-1]:
        key, sign, value = part.partition("=")
        if sign and key:
            found.append((unquote(key), None if value == NO_VALUE else unquote(value)))
    return tuple(found)


def check_partition(file: FoundFile, keys: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the partition keys of a file. Raises BadPartition unless they are ``keys``, those of earlier files."""
    own = tuple(key for key, _ in file.partition)
    if len(set(own)) != len(own):
        raise BadPartition(f"{file.path}: a partition key appears twice")
    if keys is not None and own != keys:
        expected = "/".join(f"{key}=…" for key in keys) or "no partition folders"
        raise BadPartition(f"{file.path}: {expected} is expected, as for the other files of the table")
    return own
