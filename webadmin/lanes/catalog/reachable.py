"""Find the reachable files and objects of a repository.

Rows are read in one snapshot after the store was listed: anything written or referenced later is younger than the
listing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np

from engine.formats.ranges.entry_blocks import decode_block
from engine.formats.ranges.metarange import Metarange
from engine.formats.ranges.object_entry import ObjectEntry
from engine.formats.ranges.range_file import FileInfo
from engine.lanes.catalog.files import CatalogFiles
from engine.lanes.catalog.plan.retention import KEEP_ALL, KeptCommit, active_commits
from webadmin.base.database.dialect import clock_ms, one_snapshot
from webadmin.lanes.catalog.compaction_policies import policy_of
from webadmin.lanes.catalog.lane_models import Compaction
from webadmin.lanes.catalog.models import Branch, BranchToken, Build, Commit, Repository, StagedEntry, Tag
from webadmin.lanes.catalog.places import files_of
from webadmin.lanes.catalog.states import CompactionState

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """The roots of reachability in a repository.

    All referenced metaranges; those of commits and snapshots whose objects are kept; the relative addresses in staged
    rows; the start of open builds in unix milliseconds.
    """

    metaranges: frozenset[str]
    keeping_objects: frozenset[str]
    staged: frozenset[str]
    builds_begun_ms: tuple[int, ...]


def read_roots(repository: Repository, *, now_ms: int, retention_days: int, has_objects: bool) -> Roots:
    """Return the roots in one snapshot. Staged rows are read raw: a value that a diff hides may still be served."""
    with one_snapshot():
        branches = list(Branch.objects.filter(repository=repository).values_list("pk", "head", "snapshot"))
        commits = list(
            Commit.objects.filter(repository=repository).values_list("commit_id", "parents", "created_ms", "metarange")
        )
        tagged = set(Tag.objects.filter(repository=repository).values_list("commit_id", flat=True))
        under_way = Compaction.objects.filter(repository=repository, state=CompactionState.OPEN).exclude(base="")
        bases = set(under_way.values_list("base", flat=True))
        begun = tuple(Build.objects.filter(repository_id=repository.pk).values_list("begun_ms", flat=True))
        staged = frozenset(_staged_addresses(repository)) if has_objects else frozenset()
    known = {id_: KeptCommit(id_, parents[0] if parents else None, at_ms) for id_, parents, at_ms, _ in commits}
    before_ms = now_ms - retention_days * DAY_MS if retention_days != KEEP_ALL else 0
    heads = {head: before_ms for _, head, _ in branches}
    active = active_commits(known, heads, tagged, dangling_before_ms=before_ms)
    snapshots = {snapshot for *_, snapshot in branches if snapshot}
    return Roots(
        metaranges=frozenset({metarange for *_, metarange in commits} | snapshots | bases),
        keeping_objects=frozenset({metarange for id_, *_, metarange in commits if id_ in active} | snapshots | bases),
        staged=staged,
        builds_begun_ms=begun,
    )


def _staged_addresses(repository: Repository) -> Iterator[str]:
    """Yield the addresses in all rows of the repository's tokens, including tokens that no record names any more."""
    tokens = BranchToken.objects.filter(repository_id=repository.pk).values_list("pk", flat=True)
    for token in list(tokens):
        rows = StagedEntry.objects.filter(token_id=token).exclude(identity=b"")
        for payload in rows.values_list("payload", flat=True).iterator():
            yield ObjectEntry.from_payload(bytes(payload)).address


class Reach:
    """The files and objects that are reachable from the roots of a repository.

    Reading again adds to the result: a file that was reachable once stays reachable, and no file is read twice.
    Addresses are kept as hashes: on a collision an unreachable object may be kept.

    ``links`` and ``read_ms`` are the repository's count of links and the database's time just before the last reading.
    """

    def __init__(self, repository: Repository, *, has_objects: bool) -> None:
        self.files = files_of(repository)
        self.states: dict[str, Metarange] = {}
        self.links = self.read_ms = 0
        self._repository, self._has_objects = repository, has_objects
        self._ranges: set[str] = set()
        self._hashes = np.empty(0, np.int64)

    def read(self) -> Roots:
        """Read the present roots. Raises BadObject, StorageError: nothing may be deleted then."""
        own = Repository.objects.filter(pk=self._repository.pk)
        self.links = own.values_list("links", flat=True).first() or 0
        self.read_ms = clock_ms()
        days = policy_of(self._repository).retention_days
        roots = read_roots(self._repository, now_ms=self.read_ms, retention_days=days, has_objects=self._has_objects)
        for id_ in sorted(roots.metaranges - self.states.keys()):
            self.states[id_] = self.files.read_metarange(id_)
        if self._has_objects:
            self._add_addresses(roots)
        return roots

    def __contains__(self, address: object) -> bool:
        value = hash(address)
        at = int(np.searchsorted(self._hashes, value))
        return at < len(self._hashes) and int(self._hashes[at]) == value

    def _add_addresses(self, roots: Roots) -> None:
        new = {
            info.id: info
            for id_ in sorted(roots.keeping_objects)
            for info in self.states[id_].ranges
            if info.id not in self._ranges
        }
        found = np.fromiter(map(hash, chain(roots.staged, addresses_in(self.files, new.values()))), np.int64)
        self._hashes = np.union1d(self._hashes, found)
        self._ranges |= new.keys()


def addresses_in(files: CatalogFiles, ranges: Iterable[FileInfo]) -> Iterator[str]:
    """Yield the addresses of the entries in these ranges."""
    for info in ranges:
        for block in files.whole_blocks(info):
            for _, _, payload in decode_block(block):
                yield ObjectEntry.from_payload(payload).address
