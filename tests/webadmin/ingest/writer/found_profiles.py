"""Which pushed profiles a query finds, through index and objects, and how often."""

from __future__ import annotations

from dataclasses import replace

from engine.formats.profile_block.container.metadata import decode_metadata
from engine.query.top_functions import top_functions
from engine.storage import ObjectStore
from tests.webadmin.ingest.writer.pushes import PROFILE_TYPE, SAMPLE_VALUE, SERVICE, TENANT
from webadmin.lanes.profiles.models import Block

EVERYTHING = 1_000_000


def found_profiles(store: ObjectStore) -> dict[str, int]:
    """Return name and count of each profile of ``pushed_profile`` that the index leads to."""
    rows = Block.objects.values_list("object_key", "metadata", "size_bytes")
    blocks = [(key, replace(decode_metadata(bytes(metadata)), size=size)) for key, metadata, size in rows]
    answer = top_functions(store, blocks, TENANT, SERVICE, PROFILE_TYPE, EVERYTHING)
    return {one.function: one.self_value // SAMPLE_VALUE for one in answer.functions if one.self_value}
