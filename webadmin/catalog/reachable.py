"""What the rows of a repository reach: its files, and the objects of its entries. Read of one moment, after the store
was listed: what is put or named later is younger than that listing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from engine.catalog.entry_blocks import decode_block
from engine.catalog.files import CatalogFiles
from engine.catalog.metarange import Metarange
from engine.catalog.object_entry import ObjectEntry
from engine.catalog.range_file import FileInfo
from engine.planning.staging.retention import KEEP_ALL, KeptCommit, active_commits
from webadmin.catalog.lane_models import Compaction
from webadmin.catalog.models import Branch, BranchToken, Build, Commit, Repository, StagedEntry, Tag
from webadmin.catalog.states import CompactionState
from webadmin.database.dialect import one_snapshot

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """Metaranges that rows name: all of them, and those of commits and snapshots that keep their objects; the relative
    addresses in staged rows; since when builds are open, unix milliseconds."""

    metaranges: frozenset[str]
    keeping_objects: frozenset[str]
    staged: frozenset[str]
    builds_begun_ms: tuple[int, ...]


def read_roots(repository: Repository, *, now_ms: int, retention_days: int, has_objects: bool) -> Roots:
    """Return what is reached, of one moment. Staged rows are raw: what a diff hides may still be served."""
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
    """Yield the addresses in all rows of the repository's tokens, also of those that no record names any more."""
    tokens = BranchToken.objects.filter(repository_id=repository.pk).values_list("pk", flat=True)
    for token in list(tokens):
        rows = StagedEntry.objects.filter(token_id=token).exclude(identity=b"")
        for payload in rows.values_list("payload", flat=True).iterator():
            yield ObjectEntry.from_payload(bytes(payload)).address


def reached_states(files: CatalogFiles, roots: Roots) -> dict[str, Metarange]:
    """Return the metaranges that are reached. Raises BadObject, StorageError: then nothing may be deleted."""
    return {id_: files.read_metarange(id_) for id_ in sorted(roots.metaranges)}


def addresses_in(files: CatalogFiles, ranges: Iterable[FileInfo]) -> Iterator[str]:
    """Yield the addresses of the entries in these ranges; each range is read once."""
    seen: set[str] = set()
    for info in ranges:
        if info.id in seen:
            continue
        seen.add(info.id)
        for block in files.whole_blocks(info):
            for _, _, payload in decode_block(block):
                yield ObjectEntry.from_payload(payload).address
