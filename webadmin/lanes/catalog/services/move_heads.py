"""Move the head of a branch to a commit built without its staged rows.

Used by merge, revert, cherry-pick, import and hard reset. The branch must be clean, unless staged rows are dropped on
purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager

from engine.formats.ranges.metarange import Metarange
from engine.formats.ranges.model import Row
from engine.lanes.catalog.plan.branch import BranchRecord, BranchUpdate, Refusal, base_version_of, move_head, reset
from engine.lanes.catalog.state_reader import StateReader
from engine.lanes.catalog.three_way import Side, cherry_pick_state, import_rows, merge_states, revert_state
from engine.storage import ObjectNotFound
from webadmin.base.access.services import record_audit
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.catalog.errors import (
    BranchBusy,
    BranchMissing,
    CommitRefused,
    DirtyBranch,
    FilesCondemned,
    ImportRefused,
    NothingToMerge,
)
from webadmin.lanes.catalog.models import Commit, Repository
from webadmin.lanes.catalog.places import files_of, reader_of
from webadmin.lanes.catalog.services.branches import find_branch, missing
from webadmin.lanes.catalog.services.commits import NewCommit, check_commit, find_commit, make_commit
from webadmin.lanes.catalog.services.compaction.builds import met_deletion, open_build
from webadmin.lanes.catalog.services.compaction.count_load import forget_load
from webadmin.lanes.catalog.services.diffs import base_reader, is_clean
from webadmin.lanes.catalog.services.garbage.condemned_objects import count_link
from webadmin.lanes.catalog.services.publish import publish_moved_head
from webadmin.lanes.catalog.services.records import change_record, read_record, seal_branch
from webadmin.lanes.catalog.services.refs import commit_at
from webadmin.lanes.catalog.services.repositories import check_writable
from webadmin.lanes.catalog.states import Why

TRIES = 10

Made = tuple[Metarange, tuple[Commit, ...]]
"""The state of a new commit, and its parents."""


def merge_into(
    repository: Repository,
    source_ref: str,
    branch_name: str,
    new: NewCommit,
    *,
    strategy: Side | None = None,
    is_squashed: bool = False,
    context: ActionContext,
) -> Commit:
    """Merge a commit into a branch. ``is_squashed``: the source is not a parent of the result.

    Raises MergeConflict, NothingToMerge, DirtyBranch, BranchBusy, and the errors of references and commits.
    """
    source = commit_at(repository, source_ref)

    def make(head: Commit) -> Made:
        base = base_reader(repository, head, source)
        destination, theirs = (reader_of(repository, each.metarange) for each in (head, source))
        if theirs.metarange.id == base.metarange.id and not new.allow_empty:
            raise NothingToMerge(f"nothing of {source_ref} is not in {branch_name} already")
        merged = merge_states(destination, theirs, base, strategy=strategy)
        return merged, (head,) if is_squashed else (head, source)

    return _move(repository, branch_name, new, make, action="merge", context=context)


def revert_commit(
    repository: Repository,
    branch_name: str,
    ref: str,
    new: NewCommit,
    *,
    parent_number: int | None = None,
    context: ActionContext,
) -> Commit:
    """Revert the changes of a commit against its parent (of a merge: parent ``parent_number``, from 1) on a branch.

    Raises MergeConflict, CommitRefused, NothingToMerge, DirtyBranch, BranchBusy, RefMissing, RefRefused.
    """
    reverted = commit_at(repository, ref)
    parent = _parent_state(repository, reverted, parent_number)

    def make(head: Commit) -> Made:
        state = revert_state(reader_of(repository, head.metarange), reader_of(repository, reverted.metarange), parent)
        return _changed(state, head, new, f"reverting {reverted}"), (head,)

    return _move(repository, branch_name, new, make, action="revert", context=context)


def cherry_pick(
    repository: Repository,
    branch_name: str,
    ref: str,
    new: NewCommit | None,
    *,
    parent_number: int | None = None,
    context: ActionContext,
) -> Commit:
    """Apply the changes of a commit against its parent to a branch; without ``new``, message and metadata are copied.

    Raises MergeConflict, CommitRefused, NothingToMerge, DirtyBranch, BranchBusy, RefMissing, RefRefused.
    """
    picked = commit_at(repository, ref)
    parent = _parent_state(repository, picked, parent_number)
    commit = new or NewCommit(committer=context.actor, message=picked.message, metadata=picked.metadata)

    def make(head: Commit) -> Made:
        state = cherry_pick_state(
            reader_of(repository, head.metarange), reader_of(repository, picked.metarange), parent
        )
        return _changed(state, head, commit, f"picking {picked}"), (head,)

    return _move(repository, branch_name, commit, make, action="cherry_pick", context=context)


def import_entries(
    repository: Repository,
    branch_name: str,
    prefixes: Iterable[bytes],
    rows: Callable[[], AbstractContextManager[Iterator[Row]]],
    new: NewCommit,
    *,
    keys: Iterable[bytes] = (),
    context: ActionContext,
) -> Commit:
    """Replace all keys with some prefixes, and some keys, by ascending rows, and commit the result.

    ``rows`` opens the rows once per try. Raises ImportRefused, UnsortedKeys, DirtyBranch, BranchBusy.
    """
    replaced, single = sorted(set(prefixes)), frozenset(keys)
    if not replaced and not single:
        raise ImportRefused("nothing is named that is to be imported")

    def make(head: Commit) -> Made:
        with rows() as given:
            inside = _within(given, tuple(replaced), single)
            state = import_rows(reader_of(repository, head.metarange), replaced, inside, keys=single)
        return _changed(state, head, new, "importing"), (head,)

    return _move(repository, branch_name, new, make, action="import", context=context)


def hard_reset(
    repository: Repository, branch_name: str, ref: str, *, force: bool = False, context: ActionContext
) -> Commit:
    """Set the head of a branch to a commit; ``force`` drops uncommitted changes. Raises DirtyBranch without it."""
    check_writable(repository)
    commit = commit_at(repository, ref)
    branch = find_branch(repository, branch_name)

    def audit(before: BranchRecord, after: BranchRecord) -> None:
        entry = {"branch": branch_name, "before": before.head, "after": after.head, "why": context.why}
        record_audit(actor=context.actor, action="catalog_hard_reset", target=str(repository), detail=entry)
        count_link(repository.pk)
        forget_load(branch.pk)

    for _ in range(TRIES):
        record = read_record(branch.pk) if force else _sealed_clean(repository, branch.pk, branch_name)
        if record is None:
            raise BranchMissing(missing(repository, branch_name))
        base_version = base_version_of(record)

        def decide(found: BranchRecord | None, token: str) -> BranchUpdate | Refusal:
            if found is None or not force:
                return move_head(found, base_version, commit.commit_id, is_clean=True)  # noqa: B023  (called at once)
            dropped = reset(found, token)
            return BranchUpdate(dropped.branch.next_version(head=commit.commit_id), dropped.retired)

        if isinstance(change_record(branch.pk, decide, why=Why.RESET, then=audit), BranchUpdate):
            return commit
    raise BranchBusy(f"others changed {branch_name} in each of {TRIES} tries")


def _move(
    repository: Repository,
    branch_name: str,
    new: NewCommit,
    make: Callable[[Commit], Made],
    *,
    action: str,
    context: ActionContext,
) -> Commit:
    check_commit(new)
    check_writable(repository)
    branch = find_branch(repository, branch_name)
    for _ in range(TRIES):
        record = _sealed_clean(repository, branch.pk, branch_name)
        base_version = base_version_of(record)
        with open_build(repository, Why.MERGE, branch_id=branch.pk, base_version=base_version) as build:
            try:
                state, parents = make(find_commit(repository, record.head))
            except ObjectNotFound:
                if not met_deletion(build):
                    raise
                continue
            commit = make_commit(repository, new, state.id, parents)
            try:
                moved = publish_moved_head(repository, base_version, build, state, commit, context, action=action)
            except FilesCondemned:
                continue
        if isinstance(moved, BranchUpdate):
            return commit
    raise BranchBusy(f"others changed {branch_name} in each of {TRIES} tries")


def _sealed_clean(repository: Repository, branch_id: int, branch_name: str) -> BranchRecord:
    """Seal a clean branch and return its record. Raises DirtyBranch, BranchMissing."""
    record = read_record(branch_id)
    # Check before sealing, so that repeated refusals do not accumulate sealed tokens.
    if record is not None and is_clean(repository, record):
        read_generation = record.generation
        record = seal_branch(branch_id, why=Why.MERGE)
        if record is not None and (
            record.generation == read_generation or is_clean(repository, record, tokens=record.sealed)
        ):
            return record
    if record is None:
        raise BranchMissing(missing(repository, branch_name))
    raise DirtyBranch(f"{branch_name} has uncommitted changes: commit or reset them first")


def _parent_state(repository: Repository, commit: Commit, number: int | None) -> StateReader:
    parents = commit.parents
    if len(parents) > 1 and number is None:
        raise CommitRefused(f"{commit} is a merge: say against which of its {len(parents)} parents (from 1)")
    if number is not None and not 1 <= number <= max(1, len(parents)):
        raise CommitRefused(f"{commit} has {len(parents)} parents: there is none of number {number}")
    if not parents:
        return StateReader(files_of(repository), files_of(repository).write_metarange([])[0])
    return reader_of(repository, find_commit(repository, parents[(number or 1) - 1]).metarange)


def _changed(state: Metarange, head: Commit, new: NewCommit, doing: str) -> Metarange:
    if state.id == head.metarange and not new.allow_empty:
        raise NothingToMerge(f"{doing} changes nothing on the branch")
    return state


def _within(rows: Iterator[Row], prefixes: tuple[bytes, ...], keys: frozenset[bytes]) -> Iterator[Row]:
    for row in rows:
        if not row[0].startswith(prefixes) and row[0] not in keys:
            raise ImportRefused(f"key {row[0].decode('utf-8', 'backslashreplace')!r} is outside of what is imported")
        yield row
