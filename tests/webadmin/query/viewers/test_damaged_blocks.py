"""Whatever becomes of one block, answers come from the others and say so: over the wire and on the terminal."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from django.core.management import call_command

from engine.formats.profile_block.container.container import BlockReader
from engine.formats.profile_block.table.profile_table import ProfileTableReader
from engine.formats.proto import querier_pb2
from engine.query.rows import STACKS, TIME, VALUES
from tests.webadmin.query.viewers.conftest import CPU, Viewer
from tests.webadmin.query.viewers.test_other_tenants import requests
from webadmin.lanes.profiles.models import Block, Dataset
from webadmin.query import questions

PROFILES, SERIES, SYMBOLS = range(3)


@dataclass(frozen=True)
class Blocks:
    """A good block with the value 1, and one with the value 2 that a test spoils."""

    viewer: Viewer
    key: str

    @property
    def whole(self) -> bytes:
        return bytes(self.viewer.stored.store.get(self.key))

    def put(self, data: bytes) -> None:
        self.viewer.stored.store.put(self.key, data)

    def sections(self) -> list[tuple[int, int]]:
        """Return where the sections of the only dataset with rows begin and end."""
        meta = BlockReader.open(self.viewer.stored.store, self.key).meta
        (dataset,) = [one for one in meta.datasets if one.format == 0]
        starts = dataset.table_of_contents
        return list(zip(starts, (*starts[1:], starts[0] + dataset.size), strict=True))


def cut(blocks: Blocks) -> None:
    blocks.put(blocks.whole[: blocks.sections()[PROFILES][0] + 100])


def empty(blocks: Blocks) -> None:
    blocks.put(b"")


def missing(blocks: Blocks) -> None:
    blocks.viewer.stored.store.delete(blocks.key)


def other_object(blocks: Blocks) -> None:
    blocks.put(b"this is no block" * 1000)


def flipped(section: int, place: float) -> Callable[[Blocks], None]:
    def spoil(blocks: Blocks) -> None:
        start, end = blocks.sections()[section]
        data = bytearray(blocks.whole)
        data[min(int(start + place * (end - start)), end - 1)] ^= 0x10
        blocks.put(bytes(data))

    return spoil


def page(column: str) -> Callable[[Blocks], None]:
    """Flip a bit of the last byte of a column's pages."""

    def spoil(blocks: Blocks) -> None:
        start, end = blocks.sections()[PROFILES]
        data = bytearray(blocks.whole)
        table = ProfileTableReader(bytes(data[start:end]))
        [(_, last)] = table.column_ranges(0, (column,))
        data[start + last - 1] ^= 1
        blocks.put(bytes(data))

    return spoil


def zeroed(section: int) -> Callable[[Blocks], None]:
    def spoil(blocks: Blocks) -> None:
        start, end = blocks.sections()[section]
        blocks.put(blocks.whole[:start] + bytes(end - start) + blocks.whole[end:])

    return spoil


def wrong_size(blocks: Blocks) -> None:
    """The index says that the object and its dataset are larger than they are."""
    own = Dataset.objects.filter(block__object_key=blocks.key)
    for dataset in own:
        Dataset.objects.filter(id=dataset.id).update(size_bytes=dataset.size_bytes + 5000)
    Block.objects.filter(object_key=blocks.key).update(size_bytes=len(blocks.whole) + 10_000)


def too_small(blocks: Blocks) -> None:
    """The index says that the object is smaller than it is."""
    Block.objects.filter(object_key=blocks.key).update(size_bytes=10)


SPOILT = {
    "cut": cut,
    "empty": empty,
    "missing": missing,
    "another object": other_object,
    "times": page(TIME),
    "stacks": page(STACKS),
    "values": page(VALUES),
    "footer of the table": flipped(PROFILES, 0.95),
    "end of the table": flipped(PROFILES, 1),
    "series": flipped(SERIES, 0.5),
    "symbols": flipped(SYMBOLS, 0.5),
    "header of symbols": flipped(SYMBOLS, 0),
    "zeroed table": zeroed(PROFILES),
    "zeroed series": zeroed(SERIES),
    "zeroed symbols": zeroed(SYMBOLS),
    "larger in the index": wrong_size,
    "smaller in the index": too_small,
}

NOT_FOR_POINTS = {"symbols", "header of symbols", "zeroed symbols", "stacks", "values"}
"""What points do not read."""


@pytest.fixture
def blocks(viewer: Viewer) -> Blocks:
    viewer.write({"a": 1}, at=0)
    return Blocks(viewer, viewer.write({"a": 2}, at=1, host="spoilt"))


@pytest.mark.parametrize("kind", SPOILT)
def test_every_question_is_answered_from_the_rest(blocks: Blocks, kind: str) -> None:
    viewer = blocks.viewer
    SPOILT[kind](blocks)
    answers = {}
    for method, body in requests(viewer).items():
        questions.query_engine().cache._entries.clear()
        answers[method] = viewer.post(method, body)
        assert answers[method].status_code == 200, (method, answers[method].content)
    stacks = answers["SelectMergeStacktraces"]
    assert blocks.key in stacks["Lithify-Partial"]
    assert stacks["Lithify-Partial"].startswith("1 not read: ")
    assert querier_pb2.SelectMergeStacktracesResponse.FromString(stacks.content).flamegraph.total == 1
    (series, *others) = querier_pb2.SelectSeriesResponse.FromString(answers["SelectSeries"].content).series
    points = [point.value for one in (series, *others) for point in one.points]
    assert 1 in points
    assert sum(points) == 1 or kind in NOT_FOR_POINTS
    assert ("Lithify-Partial" in answers["SelectSeries"]) == (sum(points) == 1)


@pytest.mark.parametrize("kind", SPOILT)
def test_the_command_lists_what_its_answer_lacks_and_exits_with_2(blocks: Blocks, kind: str) -> None:
    viewer = blocks.viewer
    SPOILT[kind](blocks)
    asked = (
        "--tenant",
        "quarry",
        "--from",
        str(viewer.start_ms),
        "--until",
        str(viewer.start_ms + 60_000),
        "--type",
        CPU,
    )
    out = io.StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("query", "top", "--json", *asked, stdout=out)
    assert ended.value.code == 2
    told = json.loads(out.getvalue())
    assert told["total"] == 1
    assert [(one["object"], one["tenant"]) for one in told["report"]["damage"]] == [(blocks.key, "quarry")]
    assert told["report"]["damage"][0]["reason"]
