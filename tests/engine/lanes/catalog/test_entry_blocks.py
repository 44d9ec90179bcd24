"""Blocks of rows and their merge, by the twin and compiled: one suite, one answer, the same bytes."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.errors import BadObject
from engine.formats.ranges import _entry_blocks_py
from engine.formats.ranges.errors import InvalidRecord, UnsortedKeys
from engine.formats.ranges.layout import BLOCK_BYTES, SplitRules
from engine.formats.ranges.model import Interval, Row
from engine.lanes.catalog.apply import hidden_of
from tests.engine.formats.profile_block.damage import flips, truncations
from tests.engine.lanes.catalog.factories import Changes, applied, layer, row
from tests.engine.lanes.catalog.strategies import LAYERS, STATES

RULES = SplitRules(bytes_min=24, bytes_max=120, every=4, borders_every=4)
ROWS = st.dictionaries(
    st.binary(min_size=1, max_size=40), st.tuples(st.binary(max_size=5), st.binary(max_size=20)), max_size=20
).map(lambda rows: [(key, one, two if one else b"") for key, (one, two) in sorted(rows.items())])


class Files:
    """A sink that keeps everything."""

    def __init__(self) -> None:
        self.files: list[list[tuple[bytes, int, int, bytes, bytes]]] = [[]]

    def block(self, *told: object) -> None:
        self.files[-1].append(told)  # type: ignore[arg-type]

    def cut(self) -> None:
        self.files.append([])

    @property
    def blocks(self) -> list[bytes]:
        return [block[0] for file in self.files for block in file]


@pytest.fixture(scope="module", params=["_entry_blocks_py", "_entry_blocks"])
def kernels(request: pytest.FixtureRequest) -> ModuleType:
    """The twin and, where they are built, the compiled kernels."""
    try:
        return importlib.import_module(f"engine.formats.ranges.{request.param}")
    except ModuleNotFoundError:
        pytest.skip("the kernels are not built")


def encoded(kernels: ModuleType, rows: list[Row], rules: SplitRules | None = None) -> Files:
    sink = Files()
    assert kernels.encode_rows(rows, sink, rules) == len(rows)
    return sink


@given(ROWS)
def test_rows_come_back_as_they_were_written(kernels: ModuleType, rows: list[Row]) -> None:
    sink = encoded(kernels, rows, RULES)
    assert [each for block in sink.blocks for each in kernels.decode_block(block)] == rows
    assert encoded(_entry_blocks_py, rows, RULES).files == sink.files
    for told in (block for file in sink.files for block in file):
        inside = kernels.decode_block(told[0])
        assert told[1:] == (
            len(inside),
            sum(len(part) for each in inside for part in each),
            inside[0][0],
            inside[-1][0],
        )


def test_files_are_cut_by_hash_inside_bounds_and_blocks_by_length(kernels: ModuleType) -> None:
    rules = SplitRules(bytes_min=200_000, bytes_max=400_000, every=16, borders_every=1 << 20)
    rows = [row(b"key-%06d" % number, "v" * 40, "a" * 40) for number in range(20_000)]
    files = [file for file in encoded(kernels, rows, rules).files if file]
    sizes = [sum(block[2] for block in file) for file in files]
    assert len(files) > 5
    assert all(200_000 <= size < 400_200 for size in sizes[:-1])
    assert all(xxhash.xxh64_intdigest(file[-1][4]) % 16 == 0 for file in files[:-1])
    assert all(BLOCK_BYTES <= len(block[0]) < BLOCK_BYTES + 200 for file in files for block in file[:-1])


def test_a_border_cuts_whatever_was_written_before(kernels: ModuleType) -> None:
    rules = SplitRules(bytes_min=1 << 30, bytes_max=1 << 30, every=8, borders_every=8)
    keys = [b"%05d" % number for number in range(1_000)]
    files = [file for file in encoded(kernels, [row(key, "v") for key in keys], rules).files if file]
    borders = [key for key in keys if xxhash.xxh64_intdigest(key) % 64 == 0]
    assert [file[-1][4] for file in files] == [*borders, keys[-1]]


def test_keys_that_do_not_ascend_are_refused(kernels: ModuleType) -> None:
    for rows in ([row(b"b", "v"), row(b"a", "v")], [row(b"a", "v"), row(b"a", "w")]):
        with pytest.raises(UnsortedKeys):
            kernels.encode_rows(rows, Files(), None)


@pytest.mark.parametrize(
    "bad",
    [
        (b"", b"i", b""),
        (b"k" * 1025, b"i", b""),
        (b"k", b"i" * 65, b""),
        (b"k", b"i", b"p" * ((1 << 20) + 1)),
        (b"k", b"", b"p"),
    ],
)
def test_what_is_no_row_is_not_written(kernels: ModuleType, bad: Row) -> None:
    with pytest.raises(InvalidRecord):
        kernels.encode_rows([bad], Files(), None)


@given(STATES, LAYERS, st.none() | st.just(b"b"), st.none() | st.just(b"ca"))
@settings(deadline=None)
def test_a_merge_equals_a_dictionary(
    kernels: ModuleType,
    values: dict[bytes, str],
    layers: list[tuple[Changes, list[Interval]]],
    after: bytes | None,
    upto: bytes | None,
) -> None:
    made = [layer(changes, intervals, f"layer {number}") for number, (changes, intervals) in enumerate(layers)]
    base = layer(values, address="base")
    sink, counts = Files(), None
    for module in (kernels, _entry_blocks_py):
        twin, sink = sink, Files()
        told, counts = (
            counts,
            module.merge_blocks(
                [each.run.blocks() for each in made], base.run.blocks(), hidden_of(made), sink, RULES, after, upto
            ),
        )
    rows = [each for block in sink.blocks for each in kernels.decode_block(block)]

    def is_inside(key: bytes) -> bool:
        return (after is None or key > after) and (upto is None or key <= upto)

    expected = {key: value for key, value in applied(values, layers).items() if is_inside(key)}
    before = {key: value for key, value in values.items() if is_inside(key)}
    assert {key: identity.decode() for key, identity, _ in rows} == expected
    # What is the same as in the base keeps the base's address.
    assert all(payload.endswith(b"base") for key, one, payload in rows if before.get(key) == one.decode())
    assert (sink.files, counts) == (twin.files, told)
    assert counts is not None
    assert counts.added == len(expected.keys() - before.keys())
    assert counts.removed == len(before.keys() - expected.keys())
    assert counts.changed == sum(before.get(key, value) != value for key, value in expected.items())
    assert counts.kept == len(expected) - counts.added - counts.changed


@given(STATES, st.lists(st.tuples(st.integers(97, 100), st.integers(0, 2)), max_size=4))
def test_the_spread_of_a_layer_is_counted_by_ranges_and_gaps(
    kernels: ModuleType, values: dict[bytes, str], spans: list[tuple[int, int]]
) -> None:
    ends = sorted({bytes([first]) for first, _ in spans})
    firsts, lasts = ends, [end + b"b" for end in ends]
    changes = layer({key: value if value != "x" else None for key, value in values.items()})
    spread, borders = kernels.spread_rows(changes.run.blocks(), firsts, lasts, 2)
    assert (spread, borders) == _entry_blocks_py.spread_rows(changes.run.blocks(), firsts, lasts, 2)
    assert sum(rows for rows, _, _ in spread.values()) == len(values)
    inside = [key for key in values if any(first <= key <= last for first, last in zip(firsts, lasts, strict=True))]
    assert sum(rows for slot, (rows, _, _) in spread.items() if slot % 2) == len(inside)
    outside = {key for key in values if key not in inside and values[key] != "x"}
    assert borders == sorted(key for key in outside if xxhash.xxh64_intdigest(key) % 2 == 0)


def test_damaged_blocks_are_refused_or_read_alike(kernels: ModuleType) -> None:
    rows = [row(b"folder/%03d" % number, "value", "address") for number in range(20)]
    block = encoded(kernels, rows).blocks[0]
    damaged = [*truncations(block, 3), *(data for _, data in flips(block))]
    refused = 0
    for data in damaged:
        answers = []
        for module in (kernels, _entry_blocks_py):
            try:
                answers.append(module.decode_block(data))
            except BadObject:
                answers.append(None)
        assert answers[0] == answers[1]
        refused += answers[0] is None
    assert refused > len(damaged) // 4


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(b"\x01\x01\x00a", id="more shared than there is"),
        pytest.param(b"\x00\x00\x00", id="empty key"),
        pytest.param(b"\x00\x81\x08\x00" + b"a" * 1025, id="key too long"),
        pytest.param(b"\x00\x01\x41\x00a" + b"i" * 65, id="identity too long"),
        pytest.param(b"\x00\x01\x01\x81\x80\x40ai" + b"p" * 1025, id="payload too long"),
        pytest.param(b"\x00\x01\x00b\x00\x01\x00a", id="keys descend"),
        pytest.param(b"\x00\x01\x00b\x01\x00\x00", id="a key twice"),
        pytest.param(b"\xff" * 11, id="number too long"),
        pytest.param(b"\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x01\x01a", id="sizes that overflow together"),
    ],
)
def test_what_no_writer_writes_is_refused(kernels: ModuleType, block: bytes) -> None:
    with pytest.raises(BadObject):
        kernels.decode_block(block)


def test_an_error_of_a_source_ends_the_merge(kernels: ModuleType) -> None:
    def fails() -> object:
        yield layer({b"a": "x"}).run.blocks().__next__()
        raise OSError("row 500")

    with pytest.raises(OSError, match="row 500"):
        kernels.merge_blocks([fails()], iter(()), [(), ()], Files(), RULES, None, None)
