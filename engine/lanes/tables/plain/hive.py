"""Finds the files of a table in a folder or bucket: flat, or in folders ``key=value`` below each other.

Names that begin with ``_`` or ``.`` are no part of the table, wherever they stand in the path: markers, unfinished
writes, and our own ``_lithify``. Every other object is told, whatever it is; who reads its footer finds out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from engine.core.errors import LithifyError
from engine.storage import ObjectStore

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""What a folder's value is for rows whose value is null."""
IGNORED = ("_", ".")
PROGRESS_STEP = 1000
"""Objects between two things said of progress."""


class BadPartition(LithifyError):
    """A path does not name its partition as the table's other paths do; the text says what is expected."""

    code = "bad_partition"


@dataclass(frozen=True, slots=True)
class FoundFile:
    """An object of a table: its path below the table's URL, size in bytes and last change (unix seconds).

    ``partition`` are the keys and values of its folders, None for a value that is null.
    """

    path: str
    size: int
    modified_at: float
    partition: tuple[tuple[str, str | None], ...]


def find_files(
    store: ObjectStore, *, start_after: str = "", progress: Callable[[int, str], None] = lambda seen, key: None
) -> Iterator[FoundFile]:
    """Yield the files of the table in ``store`` in the order of their paths, as the listing goes on.

    ``start_after`` is the path that an earlier run came to. ``progress`` is told how many objects were seen, and the
    last of them. Raises StorageError.
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
    """Tell whether readers of Hive tables pass over an object: a part of its path begins with ``_`` or ``.``.

    A folder ``_key=value`` is a partition all the same.
    """
    *folders, name = path.split("/")
    return name.startswith(IGNORED) or any(part.startswith(IGNORED) and "=" not in part for part in folders)


def partition_of(path: str) -> tuple[tuple[str, str | None], ...]:
    """Return the keys and values that the folders of a path name, percent-decoded; other folders name none."""
    found = []
    for part in path.split("/")[:-1]:
        key, sign, value = part.partition("=")
        if sign and key:
            found.append((unquote(key), None if value == NO_VALUE else unquote(value)))
    return tuple(found)


def check_partition(file: FoundFile, keys: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the partition keys of a file; BadPartition unless they are ``keys``, those of the files before it."""
    own = tuple(key for key, _ in file.partition)
    if len(set(own)) != len(own):
        raise BadPartition(f"{file.path}: a folder's key stands twice")
    if keys is not None and own != keys:
        expected = "/".join(f"{key}=…" for key in keys) or "no folders key=value"
        raise BadPartition(f"{file.path}: {expected} is expected, as for the other files of the table")
    return own
