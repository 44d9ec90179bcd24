"""Adopt buckets and change their settings; every change is written to the audit log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from django.db import IntegrityError, transaction

from engine.core.errors import LithifyError
from engine.lanes.tsdb.buckets.layout import LAYOUTS
from engine.schedule.errors import PolicyRefused
from engine.storage import open_store
from webadmin.base.access.services import record_audit
from webadmin.base.access.store_places import (
    DELETES_IMPORTED,
    conflict_of_new_store,
    folder_refusal,
    imports_in_new_store,
    lock_places,
    root_refusal,
)
from webadmin.base.actions.action import ActionContext
from webadmin.base.database.dialect import locked
from webadmin.lanes.tsdb.models import NAME_MAX, URL_MAX, Bucket, BucketTenant
from webadmin.lanes.tsdb.policies import layout_of, policy_of
from webadmin.schedule.errors import NotFound

SETTINGS = (
    *("ranges", "consistency_delay_seconds", "winner", "partition_series", "partition_index_bytes", "replication"),
    *(
        "readers_know_partitions",
        "deletion_delay_seconds",
        "partial_age_seconds",
        "replica_labels",
        "tenant_shard_size",
        "is_paused",
    ),
)
"""Settings of a bucket that may be changed; URL and layout are fixed at adoption."""
PARTIAL_AGE_SECONDS_MIN = 3600
"""Minimum age of an unfinished upload before it may be deleted; a younger upload may be in progress."""


class BucketRefused(LithifyError):
    """A bucket cannot be adopted or changed as requested; the message names what to change."""

    code = "bucket_refused"


def adopt_bucket(*, url: str, layout: str, name: str = "", context: ActionContext, **settings: Any) -> Bucket:
    """Take over compaction of a bucket; return the existing row if the URL is already adopted.

    Does not read or write the bucket. Raises BucketRefused, InvalidStoreUrl.
    """
    bucket = check_adoption(url=url, layout=layout, name=name, **settings)
    if bucket.id is not None:
        return bucket
    try:
        with transaction.atomic():
            lock_places()
            _refuse_overlap(url)
            bucket.save()
            record_audit(
                actor=context.actor,
                action="adopt_bucket",
                target=bucket.name,
                detail={"url": url, "layout": layout, "why": context.why} | settings,
            )
    except IntegrityError as error:
        raise BucketRefused(f"a bucket of the name {bucket.name!r} is known already: give another name") from error
    return bucket


def check_adoption(*, url: str, layout: str, name: str = "", **settings: Any) -> Bucket:
    """Return the row of the bucket with this URL, or an unsaved one. Raises BucketRefused, InvalidStoreUrl."""
    if layout not in LAYOUTS:
        raise BucketRefused(f"{layout!r} is no layout: use {' or '.join(LAYOUTS)}")
    if len(url) > URL_MAX:
        raise BucketRefused(f"the URL has {len(url)} characters, at most {URL_MAX} are kept")
    open_store(url)  # reject a URL that cannot be opened before anything is written
    if known := Bucket.objects.filter(url=url).first():
        if known.layout != layout:
            raise BucketRefused(f"bucket {known.name!r} was adopted with the layout {known.layout}")
        return known
    if refusal := root_refusal(url) or folder_refusal(url):
        raise BucketRefused(refusal)
    _refuse_overlap(url)
    bucket = Bucket(name=(name or _name_of(url))[:NAME_MAX], url=url, layout=layout, **settings)
    _check(bucket)
    return bucket


def find_bucket(name: str) -> Bucket:
    """Return the bucket of this name. Raises NotFound."""
    found = Bucket.objects.filter(name=name).first()
    if found is None:
        raise NotFound(f"no bucket {name!r}: adopt it first")
    return found


def _refuse_overlap(url: str) -> None:
    if other := conflict_of_new_store(url, is_table=False):
        raise BucketRefused(f"{url} is, holds or lies in the place of another store: {other.name}, {other.url}")
    if imported := imports_in_new_store(url):
        raise BucketRefused(f"{url} holds {imported.name}: {DELETES_IMPORTED}")


def change_bucket(bucket: Bucket, changes: Mapping[str, Any], *, context: ActionContext) -> dict[str, Any]:
    """Change settings named in ``SETTINGS``; return those that differ now. All tenants are planned again.

    Raises BucketRefused, also for a change of replica labels after blocks were found: it would rename their tenants.
    """
    if unknown := changes.keys() - set(SETTINGS):
        raise BucketRefused(f"{min(unknown)!r} cannot be changed")
    with transaction.atomic():
        row = locked(Bucket.objects.filter(id=bucket.id)).get()
        different = {name: value for name, value in changes.items() if getattr(row, name) != value}
        before = {name: getattr(row, name) for name in different}
        labels = set(layout_of(row).replica_labels)
        for name, value in different.items():
            setattr(row, name, value)
        _check(row)
        if set(layout_of(row).replica_labels) != labels and BucketTenant.objects.filter(bucket=row).exists():
            raise BucketRefused(
                "replica labels cannot change once blocks were found: they decide which tenant a block is of and what "
                "it merges with"
            )
        if different and not context.is_dry_run:
            row.save(update_fields=list(different))
            BucketTenant.objects.filter(bucket=row).update(plan_at_ms=0)
            record_audit(
                actor=context.actor,
                action="change_bucket",
                target=row.name,
                detail={"before": before, "after": different, "why": context.why},
            )
    return different


def _check(bucket: Bucket) -> None:
    try:
        policy_of(bucket)
        layout_of(bucket)
    except PolicyRefused as error:
        raise BucketRefused(str(error)) from error
    if bucket.partial_age_seconds < PARTIAL_AGE_SECONDS_MIN:
        raise BucketRefused(f"unfinished uploads of less than {PARTIAL_AGE_SECONDS_MIN} seconds are not deleted")


def _name_of(url: str) -> str:
    parts = urlsplit(url)
    words = [parts.netloc, *parts.path.split("/")] if parts.scheme == "s3" else parts.path.rstrip("/").split("/")[-2:]
    return "-".join(word for word in words if word) or "bucket"
