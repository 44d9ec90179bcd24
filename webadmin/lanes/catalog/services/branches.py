"""Create, list and delete branches."""

from __future__ import annotations

from django.db import IntegrityError, transaction

from webadmin.base.access.services import record_audit
from webadmin.base.actions.action import ActionContext
from webadmin.base.database.dialect import clock_ms, locked
from webadmin.lanes.catalog.errors import BranchExists, BranchMissing, BranchRefused
from webadmin.lanes.catalog.models import Branch, Repository, Tag
from webadmin.lanes.catalog.services.compaction.count_load import forget_load
from webadmin.lanes.catalog.services.garbage.condemned_objects import count_link
from webadmin.lanes.catalog.services.names import NAME_SHOWN_MAX, check_branch_name
from webadmin.lanes.catalog.services.pages import page_by_name
from webadmin.lanes.catalog.services.records import drop_record, first_record
from webadmin.lanes.catalog.services.refs import commit_at
from webadmin.lanes.catalog.services.repositories import check_writable


def find_branch(repository: Repository, name: str) -> Branch:
    """Return a branch. Raises BranchMissing."""
    found = Branch.objects.filter(repository=repository, name=name).first()
    if found is None:
        raise BranchMissing(missing(repository, name))
    return found


def missing(repository: Repository, name: str) -> str:
    """Return the error message for a missing branch."""
    return f"{repository.name} has no branch {name[:NAME_SHOWN_MAX]!r}"


def list_branches(
    repository: Repository, *, prefix: str = "", after: str = "", amount: int = 100, is_hidden_shown: bool = False
) -> tuple[list[Branch], bool]:
    """Return branches by name, and whether there are more."""
    rows = Branch.objects.filter(repository=repository)
    if not is_hidden_shown:
        rows = rows.filter(is_hidden=False)
    return page_by_name(rows, prefix=prefix, after=after, amount=amount)


def create_branch(
    repository: Repository, name: str, source_ref: str, *, context: ActionContext, is_hidden: bool = False
) -> Branch:
    """Create a branch at a commit; of a source branch only the committed state is used.

    Raises NameRefused, BranchExists, RefMissing, RefRefused, RepositoryReadOnly.
    """
    check_writable(repository)
    check_branch_name(name)
    commit = commit_at(repository, source_ref)
    branch = Branch(
        repository=repository,
        name=name,
        head=commit.commit_id,
        staging=0,
        is_hidden=is_hidden,
        created_ms=clock_ms(),
    )
    try:
        with transaction.atomic():
            if Tag.objects.filter(repository=repository, name=name).exists():
                raise BranchExists(f"{repository.name} has a tag {name!r}: the branch would hide it")
            first_record(branch)
            count_link(repository.pk)
            _audit(repository, "catalog_create_branch", branch, context)
    except IntegrityError as error:
        raise BranchExists(f"{repository.name} has a branch {name!r} already") from error
    return branch


def delete_branch(repository: Repository, name: str, *, context: ActionContext) -> None:
    """Delete a branch with its staged entries; its commits stay. Raises BranchMissing, BranchRefused."""
    check_writable(repository)
    if name == repository.default_branch:
        raise BranchRefused(f"{name} is the default branch of {repository.name}: it cannot be deleted")
    with transaction.atomic():
        branch = locked(Branch.objects.filter(repository=repository, name=name)).first()
        if branch is None:
            raise BranchMissing(missing(repository, name))
        drop_record(branch.pk)
        forget_load(branch.pk)
        _audit(repository, "catalog_delete_branch", branch, context)


def _audit(repository: Repository, action: str, branch: Branch, context: ActionContext) -> None:
    detail = {"branch": branch.name, "head": branch.head, "why": context.why}
    record_audit(actor=context.actor, action=action, target=str(repository), detail=detail)
