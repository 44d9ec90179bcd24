"""What lies in a bucket of Prometheus blocks: blocks, unfinished uploads, bad blocks and marks."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from engine.core.errors import LithifyError
from engine.formats.prometheus.meta import BlockMeta
from engine.lanes.tsdb.jobs import BlockFile


class MarkKind(enum.StrEnum):
    """What a mark says of its block."""

    DELETION = "deletion"  # it goes once the mark is old enough; nobody plans it
    NO_COMPACT = "no-compact"  # nobody merges it


MarkKey = tuple[str, MarkKind]
"""Block id and kind: a block has at most one mark of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A mark as found. ``time_s`` is unix seconds; ``reason`` is told by no-compact marks only.

    ``modified_at_s`` is the time of the object that was read; 0.0 if unknown, then a scan reads the mark again.
    ``is_global`` says whether that was the copy in the folder of all marks. ``fault`` says why a mark could not be
    read: it still keeps its block from being planned, and never deletes it.
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
        """What the mark is found by."""
        return self.ulid, self.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundBlock:
    """A complete block. ``meta_bytes`` is its ``meta.json`` as it is, ``files`` are the other files with their sizes.

    ``tenant`` is who its data belongs to, ``group_key`` equal for blocks that may be merged (resolution and labels, as
    the other systems write it). ``uploaded_at_s`` is when ``meta.json`` was written (unix seconds).
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
        """Bytes of index, chunks and tombstones."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialUpload:
    """A block's folder without ``meta.json``: still being written, given up, or half deleted.

    ``newest_at_s`` is when its youngest object was written (unix seconds).
    ``has_deletion_mark``: its deletion was under way, so the rest may go at once.
    """

    folder: str
    ulid: str
    objects: int
    size: int
    newest_at_s: float
    has_deletion_mark: bool = False

    def age_s(self, now_s: float) -> float:
        """Return the seconds since anything was written to it; never negative."""
        return max(0.0, now_s - self.newest_at_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class BadBlock:
    """A block whose ``meta.json`` cannot be used; it is neither planned nor deleted. ``error`` is typed and names it.

    A retryable error (the store did not answer) says nothing of the block: the next scan tries again.
    """

    folder: str
    ulid: str
    error: LithifyError


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFolder:
    """What earlier scans of a folder found: the next one reads only what is not in here.

    ``complete`` are the blocks whose ``meta.json`` was read and good, ``partial`` and ``bad`` those that had none or a
    bad one; these are looked at again by every scan.
    """

    complete: Set[str] = frozenset()
    partial: Set[str] = frozenset()
    bad: Set[str] = frozenset()
    marks: Mapping[MarkKey, Mark] = field(default_factory=dict)

    @property
    def blocks(self) -> Set[str]:
        """Every block that has anything in the bucket."""
        return self.complete | self.partial | self.bad

    def plannable(self) -> Set[str]:
        """Return the complete blocks that no mark keeps from being merged."""
        return self.complete - {ulid for ulid, _ in self.marks}


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderScan:
    """What a scan of one folder found, and how it differs from what was known.

    ``appeared`` are blocks never seen before, ``completed`` those that had been partial or bad; ``vanished`` are ids of
    complete blocks that are gone, or whose ``meta.json`` is. ``partial`` and ``bad`` are all there are now.
    ``ignored`` counts names that are no block's and mean nothing to the layout. ``is_tenant_deleted``: the owner of the
    bucket marked the whole tenant for deletion. ``known`` goes into the next scan; ``requests`` is what this one cost.
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
        """Marks in the folder of all marks whose block has nothing left in the bucket."""
        blocks = self.known.blocks
        return tuple(mark for mark in self.known.marks.values() if mark.ulid not in blocks)

    @property
    def tenants(self) -> Set[str]:
        """Whose new blocks were found."""
        return {block.tenant for block in (*self.appeared, *self.completed)}
