"""Publish a build to its branch if the branch still has the build's base version."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from engine.formats.ranges.metarange import Metarange
from engine.lanes.catalog.plan.branch import (
    BaseVersion,
    BranchRecord,
    BranchUpdate,
    Refusal,
    move_head,
    publish_commit,
    publish_snapshot,
)
from webadmin.base.access.services import record_audit
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.catalog.models import Build, Commit, Repository
from webadmin.lanes.catalog.services.commits import keep_commit
from webadmin.lanes.catalog.services.compaction.builds import take_files
from webadmin.lanes.catalog.services.compaction.count_load import forget_load
from webadmin.lanes.catalog.services.garbage.condemned_objects import count_link
from webadmin.lanes.catalog.services.records import change_record
from webadmin.lanes.catalog.states import RepositoryState, Why


def files_in(metarange: Metarange) -> set[str]:
    """Return the ids of the files of a state."""
    return {metarange.id, *(info.id for info in metarange.ranges)}


def publish_compaction(
    base_version: BaseVersion, build: Build, metarange: Metarange, *, equals_head: bool
) -> BranchUpdate | Refusal:
    """Publish a compacted state to its branch. Raises FilesCondemned."""

    def decide(record: BranchRecord | None, token: str) -> BranchUpdate | Refusal:
        return publish_snapshot(record, base_version, metarange.id, equals_head=equals_head)

    return _publish(base_version, build, files_in(metarange), decide, Why.COMPACTION)


def publish_new_commit(
    repository: Repository,
    base_version: BaseVersion,
    build: Build,
    metarange: Metarange,
    commit: Commit,
    context: ActionContext,
) -> BranchUpdate | Refusal:
    """Make a commit of all rows of the base version the head of its branch. Raises FilesCondemned."""

    def decide(record: BranchRecord | None, token: str) -> BranchUpdate | Refusal:
        return publish_commit(record, base_version, commit.commit_id)

    def then() -> None:
        _keep(repository, commit, context, "commit")

    return _publish(base_version, build, files_in(metarange), decide, Why.COMMIT, then)


def publish_moved_head(
    repository: Repository,
    base_version: BaseVersion,
    build: Build,
    metarange: Metarange,
    commit: Commit,
    context: ActionContext,
    *,
    action: str,
) -> BranchUpdate | Refusal:
    """Make a commit built without staged rows the head of a branch whose base version is clean.

    Raises FilesCondemned.
    """

    def decide(record: BranchRecord | None, token: str) -> BranchUpdate | Refusal:
        return move_head(record, base_version, commit.commit_id, is_clean=True)

    def then() -> None:
        count_link(repository.pk)
        _keep(repository, commit, context, action)

    return _publish(base_version, build, files_in(metarange), decide, Why.MERGE, then)


def _publish(
    base_version: BaseVersion,
    build: Build,
    needed: Iterable[str],
    decide: Callable[[BranchRecord | None, str], BranchUpdate | Refusal],
    why: Why,
    also: Callable[[], None] = lambda: None,
) -> BranchUpdate | Refusal:
    def decide_here(record: BranchRecord | None, token: str) -> BranchUpdate | Refusal:
        # A repository that is being deleted no longer has branches.
        is_there = Repository.objects.filter(pk=build.repository_id, state=RepositoryState.ACTIVE).exists()
        return decide(record if is_there else None, token)

    def then(before: BranchRecord, after: BranchRecord) -> None:
        take_files(build, needed)
        also()
        forget_load(int(before.uid))

    return change_record(int(base_version.uid), decide_here, why=why, then=then)


def _keep(repository: Repository, commit: Commit, context: ActionContext, action: str) -> None:
    keep_commit(commit)
    record_audit(
        actor=context.actor,
        action=f"catalog_{action}",
        target=str(repository),
        detail={"commit": commit.commit_id, "parents": commit.parents, "why": context.why},
    )
