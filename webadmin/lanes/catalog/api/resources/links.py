"""Objects that clients write into the object store themselves: issue an address, and link the object to a branch."""

from __future__ import annotations

from django.http import HttpResponse

from engine.formats.ranges.object_entry import ObjectEntry
from engine.protocol.fields import COUNT_MAX, Fields
from engine.storage import InvalidKey, ObjectNotFound
from webadmin.base.database import dialect
from webadmin.lanes.catalog.api import shapes
from webadmin.lanes.catalog.api.answers import answer
from webadmin.lanes.catalog.api.calls import Call, metadata_of
from webadmin.lanes.catalog.api.conditions import Condition, check_early, condition_of
from webadmin.lanes.catalog.api.errors import RequestRefused
from webadmin.lanes.catalog.api.issued_names import check_issued, new_name
from webadmin.lanes.catalog.object_places import address_of, url_in
from webadmin.lanes.catalog.places import catalog_store, data_prefix_of, folder_of
from webadmin.lanes.catalog.services.write_objects import put_entry

ADDRESS_MAX = 4_096
CHECKSUM_MAX = 255
CONTENT_TYPE_MAX = 255


def address(call: Call) -> HttpResponse:
    """Return an address to which an object may be written."""
    call.refuse("presign")
    check_early(call, call.path(), Condition(is_absent=False, checksum=None))
    url = url_in(catalog_store().url, data_prefix_of(call.repository) + new_name(dialect.clock_ms()))
    return answer({"physical_address": url})


def link(call: Call) -> HttpResponse:
    """Add an entry to a branch for an object that was written to an issued address."""
    key, condition = call.path(), condition_of(call)
    check_early(call, key, condition)
    staging = Fields.of(call.body.values.get("staging"), "$.staging")
    now_ms = dialect.clock_ms()
    physical_address = staging.text("physical_address", ADDRESS_MAX, empty=False)
    relative = check_issued(address_of(call.repository, physical_address)[0], now_ms)
    size = call.body.integer("size_bytes", 0, COUNT_MAX)
    _check_written(folder_of(call.repository) + relative, physical_address, size)
    stored = ObjectEntry(
        address=relative,
        size=size,
        checksum=call.body.text("checksum", CHECKSUM_MAX, empty=False).strip('"'),
        written_at=call.body.integer("mtime", 0, COUNT_MAX, default=now_ms // 1000),
        content_type=call.body.text("content_type", CONTENT_TYPE_MAX, default=""),
        metadata=metadata_of(call.body, "user_metadata"),
    )
    made = put_entry(
        call.repository,
        call.names["branch"],
        key,
        stored,
        if_absent=condition.is_absent,
        if_match=condition.checksum,
    )
    return answer(shapes.stats_of(call.repository, made))


def _check_written(place: str, declared: str, size: int) -> None:
    try:
        found = catalog_store().head(place)
    except (ObjectNotFound, InvalidKey) as error:
        raise RequestRefused(f"nothing was written to {declared}") from error
    if found.size != size:
        raise RequestRefused(f"{declared} has {found.size} bytes, not {size}")
