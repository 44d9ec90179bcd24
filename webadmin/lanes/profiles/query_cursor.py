"""Paging of queries: the cursor between pages, and the snapshot that all of them show.

Every page shows the blocks that were live at the command index of the first one. Block rows record the commands of
their addition and of their removal, so that later pages leave out blocks added since and still show replaced ones:
readers of a busy service need not start again. Additions may commit in another order than their indexes: missing
indexes below the last one are part of the snapshot. Changes that no row records make readers start again: a dropped or
trimmed block, a deleted object, and a change of the delete requests (decision 0059).
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import Any

from django.db.models import Q

from engine.lanes.profiles.jobs import DeleteMask
from webadmin.lanes.profiles.errors import IndexMoved, InvalidIndexQuery
from webadmin.lanes.profiles.models import RemovalCause, Tombstone
from webadmin.lanes.profiles.states import LIVE_STATES, BlockState
from webadmin.schedule.models import Command, PositionMark

CURSOR_CHARS_MAX = 10_000
COMMANDS_IN_FLIGHT_MAX = 1_000
"""A missing command counts as rolled back when this many later ones have committed."""
GAPS_MAX = 200
_BIGINT_END = 1 << 63


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The snapshot of a first page: a command index in an epoch of the log, and the delete requests then in force.

    ``gaps`` are the ranges of lower indexes, closed at both ends, whose commands had not committed.
    """

    epoch: str
    command_index: int
    gaps: tuple[tuple[int, int], ...]
    masks: str

    def is_later(self, column: str) -> Q:
        """Return the condition that the command in this column is not part of the snapshot."""
        gaps = (Q(**{f"{column}__range": gap}) for gap in self.gaps)
        return reduce(or_, gaps, Q(**{f"{column}__gt": self.command_index}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The last dataset of a page.

    Services with row ids in (``services_after``, ``services_until``] were read, and of their datasets those up to this
    end of data and row id. Zeros: nothing was read yet.
    """

    services_after: int = 0
    services_until: int = 0
    end_ms: int = 0
    dataset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """The start of the next page of a query.

    Its text is opaque to clients and grants no access: each page is limited to the tenants of its credential.
    """

    query: str
    snapshot: Snapshot
    place: Place = field(default_factory=Place)

    def to_text(self) -> str:
        """Return the encoded cursor."""
        values = [_digest(self.query), *astuple(self.snapshot), *astuple(self.place)]
        return base64.urlsafe_b64encode(json.dumps(values).encode()).decode()

    @classmethod
    def parse(cls, text: str, query: str) -> Cursor:
        """Return the decoded cursor of an answer to this query. Raises InvalidIndexQuery."""
        if len(text) > CURSOR_CHARS_MAX:
            raise InvalidIndexQuery(f"cursor is longer than {CURSOR_CHARS_MAX} characters")
        try:
            values = json.loads(base64.urlsafe_b64decode(text.encode("ascii")))
        except (ValueError, RecursionError) as error:
            raise InvalidIndexQuery("cursor is not the text of an answer of this service") from error
        if not isinstance(values, list) or len(values) != 9:
            raise InvalidIndexQuery("cursor is not the text of an answer of this service")
        digest, epoch, command_index, gaps, masks, *place = values
        numbers = all(_is_bigint(number) for number in (command_index, *place)) and _are_gaps(gaps)
        if not (numbers and isinstance(epoch, str) and isinstance(masks, str)):
            raise InvalidIndexQuery("cursor is not the text of an answer of this service")
        if digest != _digest(query):
            raise InvalidIndexQuery("cursor belongs to another query: only datasets_max may differ between pages")
        after, until, end_ms, dataset = place
        return cls(
            query=query,
            snapshot=Snapshot(
                epoch=epoch,
                command_index=command_index,
                gaps=tuple((first, last) for first, last in gaps),
                masks=masks,
            ),
            place=Place(services_after=after, services_until=until, end_ms=end_ms, dataset=dataset),
        )


def read_snapshot(masks: Sequence[DeleteMask]) -> Snapshot:
    """Return the present snapshot of the index; ``masks`` were just read."""
    epoch = PositionMark.objects.values_list("epoch", flat=True).first() or ""
    last = list(Command.objects.order_by("-index").values_list("index", flat=True)[:COMMANDS_IN_FLIGHT_MAX])
    gaps = [(lower + 1, upper - 1) for upper, lower in pairwise(last) if upper - lower > 1]
    return Snapshot(
        epoch=epoch,
        command_index=last[0] if last else 0,
        gaps=tuple(gaps[:GAPS_MAX]),
        masks=_digest(str([mask.index for mask in masks])),
    )


def blocks_of(snapshot: Snapshot) -> Q:
    """Return the condition on datasets that their block was live at the snapshot's command index."""
    is_replaced_since = Q(block__state=BlockState.REPLACED) & snapshot.is_later("block__removed_command_index")
    return ~snapshot.is_later("block__added_command_index") & (Q(block__state__in=LIVE_STATES) | is_replaced_since)


def check_unmoved(shown: Snapshot, now: Snapshot, tenants: Sequence[str]) -> None:
    """Raise IndexMoved if rows of the snapshot may be deleted or hidden by now."""
    if shown == now:
        return
    is_other_history = shown.epoch != now.epoch or shown.command_index > now.command_index
    since = Tombstone.objects.filter(shown.is_later("command_index"))
    gone = since.filter(~Q(cause=RemovalCause.REPLACED) | Q(deleted_at_ms__isnull=False))
    trimmed = Command.objects.filter(
        shown.is_later("index"),
        kind=Command.Kind.OPERATE,
        change_set__action="retention",
        change_set__part__tenant__in=list(tenants),
    )
    if (
        is_other_history
        or shown.masks != now.masks
        or gone.filter(Q(block__tenant=None) | Q(block__tenant__name__in=tenants)).exists()
        or trimmed.exists()
    ):
        raise IndexMoved("blocks were removed since the first page was read: begin again with the first page")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _are_gaps(value: Any) -> bool:
    is_list = isinstance(value, list) and len(value) <= GAPS_MAX
    return is_list and all(isinstance(gap, list) and len(gap) == 2 and all(map(_is_bigint, gap)) for gap in value)


def _is_bigint(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _BIGINT_END
