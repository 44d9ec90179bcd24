"""The contents of a bucket of Prometheus blocks: blocks, partial uploads, bad blocks and marks."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from engine.core.errors import LithifyError
from engine.formats.prometheus.meta import BlockMeta
from engine.lanes.tsdb.jobs import BlockFile


class MarkKind(enum.StrEnum):
    """The kind of a block's mark."""

    DELETION = "deletion"  # The block is not planned, and deleted once the mark is old enough.
    NO_COMPACT = "no-compact"  # The block is not merged.


MarkKey = tuple[str, MarkKind]
"""Block id and kind: a block has at most one mark of each kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A mark. ``time_s`` is in Unix seconds; only no-compact marks have a ``reason``.

    ``modified_at_s`` is the modification time of the object that was read; 0.0 if unknown: the next scan reads the mark
    again. ``is_global``: the copy in the folder of all marks was read. ``fault`` is the error of an unreadable mark,
    which still excludes its block from planning and never deletes it.
    """

    ulid: str
    kind: MarkKind
    time_s: int
    reason: str = ""
    details: str = ""
    modified_at_s: float = 0.0
    is_global: bool = False
    fault: str = ""

    @property
    def key(self) -> MarkKey:
        """The key of the mark."""
        return self.ulid, self.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundBlock:
    """A complete block. ``meta_bytes`` is its unchanged ``meta.json``, ``files`` are its other files with sizes.

    Blocks with the same ``group_key`` (resolution and labels) may be merged. ``uploaded_at_s`` is the modification time
    of ``meta.json`` (Unix seconds).
    """

    folder: str
    tenant: str
    ulid: str
    group_key: str
    meta: BlockMeta
    meta_bytes: bytes
    files: tuple[BlockFile, ...]
    uploaded_at_s: float

    @property
    def size(self) -> int:
        """The bytes of index, chunks and tombstones."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialUpload:
    """A block without ``meta.json``: being uploaded, abandoned, or partly deleted.

    ``newest_at_s`` is the modification time of its newest object (Unix seconds). ``has_deletion_mark``: its deletion
    was interrupted, so the rest may be deleted at once.
    """

    folder: str
    ulid: str
    objects: int
    size: int
    newest_at_s: float
    has_deletion_mark: bool = False

    def age_s(self, now_s: float) -> float:
        """Return the seconds since its last write; never negative."""
        return max(0.0, now_s - self.newest_at_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class BadBlock:
    """A block with an unusable ``meta.json``; it is neither planned nor deleted. ``error`` names the block.

    A retryable error (the store did not respond) is no statement about the block: the next scan retries.
    """

    folder: str
    ulid: str
    error: LithifyError


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFolder:
    """The result of earlier scans of a folder; the next scan reads only what is not in it.

    ``complete`` holds blocks with a valid ``meta.json``, ``partial`` and ``bad`` those without one or with an invalid
    one, which every scan reads again.
    """

    complete: Set[str] = frozenset()
    partial: Set[str] = frozenset()
    bad: Set[str] = frozenset()
    marks: Mapping[MarkKey, Mark] = field(default_factory=dict)

    @property
    def blocks(self) -> Set[str]:
        """All blocks that have any object in the bucket."""
        return self.complete | self.partial | self.bad

    def plannable(self) -> Set[str]:
        """Return the complete blocks without marks."""
        return self.complete - {ulid for ulid, _ in self.marks}


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderScan:
    """The result of a scan of one folder, and its differences from the known state.

    ``appeared`` are new blocks, ``completed`` are blocks that were partial or bad. ``vanished`` are ids of complete
    blocks that were deleted or lost their ``meta.json``. ``partial`` and ``bad`` are complete lists. ``ignored`` counts
    names that are neither blocks nor known to the layout. ``is_tenant_deleted``: the bucket's owner marked the tenant
    for deletion. ``known`` is the input of the next scan; ``requests`` counts the requests of this one.
    """

    folder: str
    known: KnownFolder
    appeared: tuple[FoundBlock, ...]
    completed: tuple[FoundBlock, ...]
    vanished: tuple[str, ...]
    partial: tuple[PartialUpload, ...]
    bad: tuple[BadBlock, ...]
    new_marks: tuple[Mark, ...]
    vanished_marks: tuple[Mark, ...]
    ignored: int
    is_tenant_deleted: bool
    requests: Mapping[str, int]

    @property
    def orphan_marks(self) -> tuple[Mark, ...]:
        """Marks in the folder of all marks whose block has no objects left."""
        blocks = self.known.blocks
        return tuple(mark for mark in self.known.marks.values() if mark.ulid not in blocks)

    @property
    def tenants(self) -> Set[str]:
        """The tenants of new blocks."""
        return {block.tenant for block in (*self.appeared, *self.completed)}
