"""Repositories: a tenant's catalogs, each with its own folder in the object store."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from engine.core.errors import BadBlockName
from engine.formats.profile_block.container.object_names import check_tenant
from webadmin.base.access.services import intern_tenants, record_audit
from webadmin.base.actions.action import ActionContext
from webadmin.base.database.dialect import clock_ms
from webadmin.lanes.catalog.errors import NameRefused, RepositoryExists, RepositoryMissing, RepositoryReadOnly
from webadmin.lanes.catalog.models import Branch, Repository
from webadmin.lanes.catalog.places import files_of
from webadmin.lanes.catalog.services.commits import NewCommit, keep_commit, make_commit
from webadmin.lanes.catalog.services.names import (
    NAME_SHOWN_MAX,
    check_branch_name,
    check_namespace,
    check_repository_name,
)
from webadmin.lanes.catalog.services.pages import page_by_name
from webadmin.lanes.catalog.services.records import first_record
from webadmin.lanes.catalog.states import RepositoryState

FIRST_MESSAGE = "Repository created"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRepository:
    """A repository to be created. ``storage_namespace`` is the clients' name for its location and is unique."""

    tenant: str
    name: str
    storage_namespace: str
    default_branch: str = "main"
    is_read_only: bool = False


def find_repository(tenant: str, name: str) -> Repository:
    """Return a tenant's repository. Raises RepositoryMissing, also for one of another tenant."""
    found = Repository.objects.filter(tenant=tenant, name=name, state=RepositoryState.ACTIVE).first()
    if found is None:
        raise RepositoryMissing(f"{tenant} has no repository {name[:NAME_SHOWN_MAX]!r}")
    return found


def list_repositories(
    tenant: str, *, prefix: str = "", after: str = "", amount: int = 100
) -> tuple[list[Repository], bool]:
    """Return a tenant's repositories by name, and whether there are more."""
    rows = Repository.objects.filter(tenant=tenant, state=RepositoryState.ACTIVE)
    return page_by_name(rows, prefix=prefix, after=after, amount=amount)


def create_repository(new: NewRepository, *, context: ActionContext) -> Repository:
    """Create a repository with one branch at an empty commit.

    Raises NameRefused, RepositoryExists, StorageError.
    """
    try:
        check_tenant(new.tenant)
    except BadBlockName as error:
        raise NameRefused(str(error)) from error
    repository = Repository(
        tenant=new.tenant,
        name=check_repository_name(new.name),
        storage_namespace=check_namespace(new.storage_namespace),
        default_branch=check_branch_name(new.default_branch),
        is_read_only=new.is_read_only,
        created_ms=clock_ms(),
    )
    try:
        with transaction.atomic():
            intern_tenants([new.tenant])
            repository.save()
            # The only write to the store inside a transaction: a repository cannot exist without its first state.
            empty, _ = files_of(repository).write_metarange([])
            commit = make_commit(repository, NewCommit(committer=context.actor, message=FIRST_MESSAGE), empty.id, ())
            keep_commit(commit)
            first_record(
                Branch(
                    repository=repository,
                    name=new.default_branch,
                    head=commit.commit_id,
                    staging=0,
                    created_ms=repository.created_ms,
                )
            )
            record_audit(
                actor=context.actor,
                action="catalog_create_repository",
                target=str(repository),
                detail={"storage_namespace": repository.storage_namespace, "why": context.why},
            )
    except IntegrityError as error:
        raise RepositoryExists(
            f"{new.tenant} has a repository {new.name!r}, or one in {new.storage_namespace!r}, already"
        ) from error
    return repository


def delete_repository(repository: Repository, *, context: ActionContext, force: bool = False) -> None:
    """Delete a repository; no effect if it is already deleted.

    It can be restored for ``CATALOG_REPOSITORY_GRACE_SECONDS``; then its rows and files are deleted.

    Raises RepositoryReadOnly for a read-only one without ``force``.
    """
    if repository.is_read_only and not force:
        raise RepositoryReadOnly(f"{repository.name} is read-only: it is deleted with force only")
    with transaction.atomic():
        gone = Repository.objects.filter(pk=repository.pk, state=RepositoryState.ACTIVE).update(
            state=RepositoryState.DELETED, deleted_ms=clock_ms()
        )
        if gone:
            record_audit(
                actor=context.actor,
                action="catalog_delete_repository",
                target=str(repository),
                detail={"id": repository.pk, "why": context.why},
            )


def restore_repository(repository: Repository, *, context: ActionContext) -> None:
    """Restore a deleted repository unchanged. A dry run raises the same errors.

    Raises RepositoryMissing if there is nothing to restore, RepositoryExists if its name or namespace is in use again.
    """
    refused = RepositoryExists(
        f"{repository.tenant} has another repository {repository.name!r}, or one in "
        f"{repository.storage_namespace!r}: delete that one first"
    )
    held = Repository.objects.filter(tenant=repository.tenant, state=RepositoryState.ACTIVE).exclude(pk=repository.pk)
    if held.filter(Q(name=repository.name) | Q(storage_namespace=repository.storage_namespace)).exists():
        raise refused
    deleted = Repository.objects.filter(pk=repository.pk, state=RepositoryState.DELETED)
    try:
        with transaction.atomic():
            restored = {"state": RepositoryState.ACTIVE, "deleted_ms": None}
            if not (deleted.exists() if context.is_dry_run else deleted.update(**restored)):
                raise RepositoryMissing(f"{repository} is not deleted, or its files are being deleted already")
            if not context.is_dry_run:
                record_audit(
                    actor=context.actor,
                    action="catalog_restore_repository",
                    target=str(repository),
                    detail={"id": repository.pk, "why": context.why},
                )
    except IntegrityError as error:
        raise refused from error


def begin_removal(repository: Repository) -> bool:
    """Return whether the grace period of a deleted repository is over; from then on it cannot be restored."""
    return bool(_removable(repository).update(state=RepositoryState.DELETING))


def is_removable(repository: Repository) -> bool:
    """Return whether ``begin_removal`` would return True."""
    return _removable(repository).exists()


def _removable(repository: Repository) -> QuerySet[Repository]:
    before_ms = clock_ms() - 1000 * settings.CATALOG_REPOSITORY_GRACE_SECONDS
    return Repository.objects.filter(pk=repository.pk, state=RepositoryState.DELETED, deleted_ms__lte=before_ms)


def check_writable(repository: Repository) -> None:
    """Raise RepositoryReadOnly if the repository is read-only."""
    if repository.is_read_only:
        raise RepositoryReadOnly(f"{repository.name} is read-only")
