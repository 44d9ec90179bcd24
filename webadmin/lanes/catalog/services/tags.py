"""Create, list and delete tags."""

from __future__ import annotations

from django.db import IntegrityError, transaction

from webadmin.base.access.services import record_audit
from webadmin.base.actions.action import ActionContext
from webadmin.base.database.dialect import clock_ms
from webadmin.lanes.catalog.errors import TagExists, TagMissing
from webadmin.lanes.catalog.models import Repository, Tag
from webadmin.lanes.catalog.services.garbage.condemned_objects import count_link
from webadmin.lanes.catalog.services.names import NAME_SHOWN_MAX, check_tag_name
from webadmin.lanes.catalog.services.pages import page_by_name
from webadmin.lanes.catalog.services.refs import commit_at
from webadmin.lanes.catalog.services.repositories import check_writable


def find_tag(repository: Repository, name: str) -> Tag:
    """Return a tag. Raises TagMissing."""
    found = Tag.objects.filter(repository=repository, name=name).first()
    if found is None:
        raise TagMissing(f"{repository.name} has no tag {name[:NAME_SHOWN_MAX]!r}")
    return found


def list_tags(
    repository: Repository, *, prefix: str = "", after: str = "", amount: int = 100
) -> tuple[list[Tag], bool]:
    """Return tags by name, and whether there are more."""
    return page_by_name(Tag.objects.filter(repository=repository), prefix=prefix, after=after, amount=amount)


def create_tag(repository: Repository, name: str, ref: str, *, context: ActionContext) -> Tag:
    """Create a tag at a commit. Raises NameRefused, RefMissing, RefRefused, TagExists."""
    check_writable(repository)
    check_tag_name(name)
    commit = commit_at(repository, ref)
    tag = Tag(repository=repository, name=name, commit_id=commit.commit_id, created_ms=clock_ms())
    try:
        with transaction.atomic():
            tag.save()
            count_link(repository.pk)
            _audit(repository, "catalog_create_tag", tag, context)
    except IntegrityError as error:
        raise TagExists(f"{repository.name} has a tag {name!r} already") from error
    return tag


def delete_tag(repository: Repository, name: str, *, context: ActionContext) -> None:
    """Delete a tag; its commit stays. Raises TagMissing."""
    check_writable(repository)
    tag = find_tag(repository, name)
    with transaction.atomic():
        if Tag.objects.filter(pk=tag.pk).delete()[0]:
            _audit(repository, "catalog_delete_tag", tag, context)


def _audit(repository: Repository, action: str, tag: Tag, context: ActionContext) -> None:
    detail = {"tag": tag.name, "commit": tag.commit_id, "why": context.why}
    record_audit(actor=context.actor, action=action, target=str(repository), detail=detail)
