"""Commit the staged entries of a branch: seal, build the state, publish. A crash in any step does no harm.

Sealed tokens of an interrupted commit become part of the next commit or compaction. A commit that loses a race against
a compaction is built again from fewer tokens; one without sealed rows only moves the head.
"""

from __future__ import annotations

from engine.formats.ranges.metarange import Metarange
from engine.lanes.catalog.apply import apply_layers
from engine.lanes.catalog.plan.branch import (
    BaseVersion,
    BranchRecord,
    BranchUpdate,
    Refusal,
    base_version_of,
    publish_snapshot,
)
from engine.storage import ObjectNotFound
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.catalog.errors import BranchBusy, BranchMissing, FilesCondemned, NothingToCommit
from webadmin.lanes.catalog.models import Build, Commit, Repository
from webadmin.lanes.catalog.places import files_of, metarange_of, reader_of, reader_over
from webadmin.lanes.catalog.services.branches import find_branch, missing
from webadmin.lanes.catalog.services.commits import NewCommit, check_commit, find_commit, make_commit
from webadmin.lanes.catalog.services.compaction.builds import met_deletion, open_build
from webadmin.lanes.catalog.services.diffs import are_equal
from webadmin.lanes.catalog.services.protection import Blocked, check_allowed
from webadmin.lanes.catalog.services.publish import publish_new_commit
from webadmin.lanes.catalog.services.records import change_record, read_record, seal_branch
from webadmin.lanes.catalog.services.staged_rows import base_of, basis_layer
from webadmin.lanes.catalog.states import Why

TRIES = 10


def commit_branch(repository: Repository, branch_name: str, new: NewCommit, *, context: ActionContext) -> Commit:
    """Commit all acknowledged writes; concurrent writes are either included or stay staged.

    Raises BranchMissing, CommitRefused, BranchProtected, RepositoryReadOnly, NothingToCommit, BranchBusy, BadObject.
    """
    check_commit(new)
    check_allowed(repository, branch_name, Blocked.COMMIT)
    branch = find_branch(repository, branch_name)
    record = seal_branch(branch.pk, why=Why.COMMIT)
    for _ in range(TRIES):
        if record is None:
            raise BranchMissing(missing(repository, branch_name))
        with open_build(repository, Why.COMMIT, branch_id=branch.pk, base_version=base_version_of(record)) as build:
            commit = _try_once(repository, record, build, new, context)
        if commit is not None:
            return commit
        record = read_record(branch.pk)
    raise BranchBusy(f"others changed {branch_name} in each of {TRIES} tries; what was staged is staged still")


def build_state(repository: Repository, base_version: BaseVersion) -> Metarange:
    """Return the state of a base version, writing missing files; commits and compactions build the same state."""
    base = metarange_of(repository, base_of(repository, base_version))
    if not base_version.sealed:
        return base
    with basis_layer(base_version) as layer:
        return apply_layers(files_of(repository), base, [layer]).metarange if layer else base


def _try_once(
    repository: Repository, record: BranchRecord, build: Build, new: NewCommit, context: ActionContext
) -> Commit | None:
    """Return the commit, None if a concurrent change won."""
    base_version = base_version_of(record)
    head = find_commit(repository, record.head)
    try:
        made = build_state(repository, base_version)
        is_same = not new.allow_empty and are_equal(
            reader_of(repository, head.metarange), reader_over(repository, made)
        )
    except ObjectNotFound:
        if not met_deletion(build):
            raise
        return None
    if is_same:
        if (base_version.sealed or base_version.snapshot) and not _clean(base_version):
            return None
        raise NothingToCommit(f"nothing on the branch differs from commit {head}")
    commit = make_commit(repository, new, made.id, (head,))
    try:
        moved = publish_new_commit(repository, base_version, build, made, commit, context)
    except FilesCondemned:
        return None
    return commit if isinstance(moved, BranchUpdate) else None


def _clean(base_version: BaseVersion) -> bool:
    """Drop layers without any effect on the head; return False if they are no longer those of the branch."""

    def decide(record: BranchRecord | None, token: str) -> BranchUpdate | Refusal:
        return publish_snapshot(record, base_version, "", equals_head=True)

    return isinstance(change_record(int(base_version.uid), decide, why=Why.COMMIT), BranchUpdate)
