"""Create tables and change their settings; every change is written to the audit log."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F

from engine.core.errors import BadBlockName
from engine.formats.profile_block.container.object_names import check_tenant
from engine.lanes.tables.plain.foreign_formats import check_place
from engine.storage import open_store
from engine.storage.locations import locate_store
from webadmin.base.access.services import intern_tenants, record_audit
from webadmin.base.access.store_places import (
    DELETES_IMPORTED,
    conflict_of_new_store,
    folder_refusal,
    imports_in_new_store,
    lock_places,
    root_refusal,
)
from webadmin.base.access.tenant_places import place_of_tenant, shown_place_of_tenant
from webadmin.base.actions.action import ActionContext
from webadmin.base.database.dialect import locked
from webadmin.lanes.tables.column_sizes import COLUMN_MAX, NAME_MAX, URL_MAX
from webadmin.lanes.tables.errors import TableExists, TableMissing, TableRefused
from webadmin.lanes.tables.models import Chunk, DataSource, Policy
from webadmin.lanes.tables.policies import SETTINGS, check_settings, fingerprint_of, regrid

_NAME = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_.-]{{0,{NAME_MAX - 1}}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTable:
    """A table to be created; ``settings`` are the policy settings that differ from the defaults."""

    tenant: str
    name: str
    url: str
    time_column: str
    time_unit: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


def find_table(tenant: str, name: str) -> DataSource:
    """Return a table with its policy. Raises TableMissing."""
    found = DataSource.objects.select_related("policy").filter(tenant=tenant, name=name).first()
    if found is None:
        raise TableMissing(f"{tenant} has no table {name[:NAME_MAX]!r}")
    return found


def create_table(new: NewTable, *, context: ActionContext, is_confined: bool = False) -> DataSource:
    """Create a table; return the existing one if it has the same URL and time column.

    Writes nothing to the store, but checks the URL for tables of other formats. ``is_confined`` limits the URL to the
    tenant's own folder. Raises ForeignTable, TableRefused, TableExists, InvalidStoreUrl.
    """
    source, policy = _checked(new, is_confined)
    if source.id is not None:
        return source
    unchecked = check_place(open_store(source.url))
    if context.is_dry_run:
        return source
    try:
        with transaction.atomic():
            lock_places()
            _refuse_overlap(source.url, new.tenant, is_confined)
            intern_tenants([new.tenant])
            source.save()
            policy.source = source
            policy.save()
            record_audit(
                actor=context.actor,
                action="create_table",
                target=str(source),
                detail={"url": new.url, "time_column": new.time_column, "time_unit": new.time_unit, "why": context.why}
                | dict(new.settings)
                | ({"unchecked": list(map(str, unchecked))} if unchecked else {}),
            )
    except IntegrityError as error:
        raise TableExists(f"{new.tenant} has a table {new.name!r} already, or {new.url} is one") from error
    return source


def _checked(new: NewTable, is_confined: bool) -> tuple[DataSource, Policy]:
    if not _NAME.fullmatch(new.name):
        raise TableRefused(f"{new.name[:NAME_MAX]!r} is no name of a table: letters, digits, '_', '-' and '.'")
    try:
        check_tenant(new.tenant)
    except BadBlockName as error:
        raise TableRefused(str(error)) from error
    if not 0 < len(new.time_column) <= COLUMN_MAX or "\0" in new.time_column:
        raise TableRefused(f"the time column is a name of at most {COLUMN_MAX} characters")
    if len(new.url) > URL_MAX or "\0" in new.url:
        raise TableRefused(f"the URL has {len(new.url)} characters, at most {URL_MAX} are kept")
    url = open_store(new.url).url  # reject a URL that cannot be opened before anything is written
    if is_confined:
        _check_place_of_tenant(url, new.tenant)
    policy = Policy(**check_settings(new.settings))
    policy.fingerprint = fingerprint_of(policy)
    known = DataSource.objects.filter(tenant=new.tenant, name=new.name).first()
    if known is not None:
        if (known.url, known.time_column, known.time_unit) != (url, new.time_column, new.time_unit):
            raise TableExists(f"{new.tenant} has a table {new.name!r} already: {known.url}, time {known.time_column}")
        return known, policy
    if refusal := ("" if is_confined else root_refusal(url)) or folder_refusal(url):
        raise TableRefused(refusal)
    _refuse_overlap(url, new.tenant, is_confined)
    source = DataSource(tenant=new.tenant, name=new.name, url=url, time_column=new.time_column, time_unit=new.time_unit)
    return source, policy


def _refuse_overlap(url: str, tenant: str, is_confined: bool) -> None:
    if other := conflict_of_new_store(url, is_table=True):
        # A tenant may learn the names of its own tables only.
        named = f": {other.name}" if not is_confined or other.is_table_of(tenant) else ""
        raise TableExists(f"{url} is, holds or lies in the place of another store{named}")
    if imported := imports_in_new_store(url):
        holds = imported.name if not is_confined or imported.tenant == tenant else "imported objects"
        raise TableRefused(f"{url} holds {holds}: {DELETES_IMPORTED}")


def alter_table(source: DataSource, changes: Mapping[str, Any], *, context: ActionContext) -> dict[str, Any]:
    """Change settings named in ``SETTINGS``, or ``is_paused``; return those that differ now.

    All chunks are analysed again. Raises TableRefused.
    """
    wanted = dict(changes)
    is_paused = wanted.pop("is_paused", None)
    checked = check_settings(wanted)
    with transaction.atomic():
        row = locked(DataSource.objects.filter(id=source.id)).get()
        policy = Policy.objects.get(source=row)
        different: dict[str, Any] = {name: value for name, value in checked.items() if getattr(policy, name) != value}
        before = {name: getattr(policy, name) for name in different}
        old_grid = (policy.granularity, policy.time_zone, policy.origin_ms)
        for name, value in different.items():
            setattr(policy, name, value)
        if is_paused is not None and is_paused != row.is_paused:
            before["is_paused"], different["is_paused"] = row.is_paused, is_paused
        policy.fingerprint = fingerprint_of(policy)
        if not different or context.is_dry_run:
            return different
        policy.save()
        DataSource.objects.filter(id=row.id).update(
            is_dirty=True, revision=F("revision") + 1, is_paused=different.get("is_paused", row.is_paused)
        )
        if (policy.granularity, policy.time_zone, policy.origin_ms) != old_grid:
            regrid(row, policy)
        elif different.keys() - {"is_paused"}:
            Chunk.objects.filter(source=row).update(is_dirty=True)
        record_audit(
            actor=context.actor,
            action="alter_table",
            target=str(row),
            detail={"before": before, "after": different, "why": context.why},
        )
    return different


assert "is_paused" not in SETTINGS, "it is the table's, not its policy's"


def _check_place_of_tenant(url: str, tenant: str) -> None:
    """Raise TableRefused unless a URL is in the tenant's own folder of the same store."""
    below, place = locate_store(place_of_tenant(tenant)), locate_store(url)
    if place == below or not below.contains(place):
        raise TableRefused(f"tables of {tenant} are placed below {shown_place_of_tenant(tenant)}")
