"""Blocks that a scan found and could not record: bad blocks, and blocks without ``meta.json``."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Q

from engine.schedule.explain import Explanation
from webadmin.lanes.tsdb.models import Block, Folder

FOUND_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class UnrecordedBlock:
    """A block that was not recorded: its state (bad or partial), and the reason."""

    ulid: str
    state: str
    why: str


def unrecorded_blocks(folder_id: int) -> list[UnrecordedBlock]:
    """Return the unrecorded blocks of a folder as of its last scan, bad ones first.

    Leaves out results of this installation that are not published yet.
    """
    examined = Folder.objects.filter(id=folder_id).values_list("examined__bad", "examined__partial")
    bad, partial = examined.get()
    found = [
        UnrecordedBlock(ulid=one["ulid"], state="bad", why=f"{one['error_class']}: {one['message']}")
        for one in bad or []
    ]
    ids = [one["ulid"] for one in partial or []]
    ours = set(Block.objects.filter(tenant__folder=folder_id, ulid__in=ids).values_list("ulid", flat=True))
    for one in partial or []:
        if one["ulid"] not in ours:
            going = "its deletion is under way" if one["has_deletion_mark"] else "its upload is not finished"
            why = f"it has no meta.json, {one['objects']} objects, {one['size']} bytes: {going}"
            found.append(UnrecordedBlock(ulid=one["ulid"], state="partial", why=why))
    return found


def explain_unrecorded(ulid: str) -> list[Explanation]:
    """Explain every unrecorded block with this ULID."""
    some = Folder.objects.filter(Q(bad__gt=0) | Q(partial__gt=0)).select_related("bucket").defer("examined")
    return [
        Explanation(
            subject=f"Block {ulid} in {folder.bucket.name}/{folder.name}",
            state=one.state,
            why=one.why,
            next=(
                "every scan looks at it again"
                if one.state == "bad"
                else f"it is deleted when nothing was written to it for {folder.bucket.partial_age_seconds} seconds"
            ),
        )
        for folder in some.order_by("bucket__name", "name")
        for one in unrecorded_blocks(folder.id)
        if one.ulid == ulid
    ][:FOUND_MAX]
