"""Entries of a reference: describe, list, delete, copy. Their bytes are in uploads and downloads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.http import HttpResponse

from engine.formats.ranges.errors import InvalidEntryKey
from engine.formats.ranges.model import KEY_BYTES_MAX, key_of
from engine.formats.ranges.object_entry import ObjectEntry
from engine.storage import ObjectNotFound
from webadmin.base.database import dialect
from webadmin.lanes.catalog.api import shapes
from webadmin.lanes.catalog.api.answers import answer, nothing, page
from webadmin.lanes.catalog.api.calls import Call, metadata_of
from webadmin.lanes.catalog.api.errors import DataMissing, RequestRefused
from webadmin.lanes.catalog.column_sizes import NAME_MAX
from webadmin.lanes.catalog.object_places import object_at
from webadmin.lanes.catalog.services.garbage.condemned_objects import withdraw
from webadmin.lanes.catalog.services.read_objects import get_entry, list_entries
from webadmin.lanes.catalog.services.write_objects import delete_entries, delete_entry, put_entry

KEYS_MAX = 1_000


def stat(call: Call) -> HttpResponse:
    """Describe an object."""
    call.refuse("presign")
    entry = get_entry(call.repository, call.names["ref"], call.path())
    return answer(shapes.stats_of(call.repository, entry, with_metadata=call.flag("user_metadata", default=True)))


def list_them(call: Call) -> HttpResponse:
    """List entries by key; with a delimiter, those below a common prefix are one item."""
    call.refuse("presign")
    bounds = call.stretch()
    found = list_entries(
        call.repository,
        call.names["ref"],
        prefix=bounds.prefix.encode(),
        after=bounds.after.encode(),
        delimiter=call.text("delimiter").encode(),
        amount=bounds.amount,
    )
    with_metadata = call.flag("user_metadata", default=True)
    results = [shapes.listed(call.repository, item, with_metadata=with_metadata) for item in found.items]
    return page(results, None if found.after is None else found.after.decode())


def delete(call: Call) -> HttpResponse:
    """Delete an entry; a missing one is no error."""
    delete_entry(call.repository, call.names["branch"], call.path())
    return nothing()


def delete_several(call: Call) -> HttpResponse:
    """Delete up to 1,000 entries; invalid keys are reported one by one, the others are deleted."""
    paths = call.body.values.get("paths")
    if not isinstance(paths, list) or len(paths) > KEYS_MAX:
        raise call.body.error("paths", f"a list of at most {KEYS_MAX} keys is expected")
    keys: list[bytes] = []
    errors: list[dict[str, Any]] = []
    for path in paths:
        try:
            keys.append(key_of(_told(path)))
        except InvalidEntryKey as error:
            errors.append({"status_code": 400, "message": str(error), "path": path})
    delete_entries(call.repository, call.names["branch"], keys)
    return answer({"errors": errors})


def copy(call: Call) -> HttpResponse:
    """Copy an entry to another key; both share the object, which is kept while either exists."""
    destination = call.path("dest_path")
    ref = call.body.text("src_ref", NAME_MAX, default="") or call.names["branch"]
    source = get_entry(call.repository, ref, key_of(call.body.text("src_path", KEY_BYTES_MAX)))
    copied = replace(ObjectEntry.from_payload(source.payload), written_at=dialect.clock_ms() / 1000)
    _keep_object(call, copied)
    made = put_entry(call.repository, call.names["branch"], destination, copied)
    return answer(shapes.stats_of(call.repository, made), 201)


def set_metadata(call: Call) -> HttpResponse:
    """Replace the user metadata of an entry; its object is unchanged."""
    key = call.path()
    metadata = metadata_of(call.body, "set")
    stored = ObjectEntry.from_payload(get_entry(call.repository, call.names["branch"], key).payload)
    changed = replace(stored, metadata=metadata)
    _keep_object(call, changed)
    put_entry(call.repository, call.names["branch"], key, changed, if_match=stored.checksum)
    return nothing(201)


def _keep_object(call: Call, value: ObjectEntry) -> None:
    """Protect an uploaded object, which may be condemned, before an entry names it. Raises DataMissing."""
    if not value.is_relative:
        return
    store, key = object_at(call.repository, value)
    is_kept = withdraw(call.repository, value.address)
    try:
        store.head(key)
    except ObjectNotFound:
        is_kept = False
    if not is_kept:
        raise DataMissing(f"the object's bytes are gone: garbage collection has deleted {key}")


def _told(path: object) -> str:
    if not isinstance(path, str):
        raise RequestRefused("$.paths: a key is a text")
    return path
