"""The symbols codec, twin and compiled: real sections byte for byte, and hostile ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.binary import ByteReader
from engine.core.errors import BadObject, BadReference, LimitExceeded, UnknownFormat
from engine.formats.profile_block.model import Function, Location, Mapping, StackTree, SymbolPartition
from engine.formats.profile_block.symbols import _symbol_tables_py, _symbols_py, symbol_limits
from engine.formats.profile_block.symbols.symbol_limits import (
    DECODED_BYTES_MAX,
    DECODED_FREE_BYTES,
    DECODED_RATIO_MAX,
    decoded_bytes_max,
)
from engine.query.memory import UNDER_WAY_FACTOR
from tests.engine.conftest import ForeignBlocks, Implementation
from tests.engine.formats.profile_block.damage import flips, patched, refuses, truncations, with_crc
from tests.engine.formats.profile_block.factories import symbol_partition

FOOTER_BYTES = 24
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
UINT64 = st.integers(0, (1 << 64) - 1)

KNOWN_SIZES = {
    "01J2VJQPYD": [(1316973632595159458, 245, 3, 160, 156, 323, 55)],
    "01J2VJQRTM": [(307181196505662283, 231, 3, 147, 145, 297, 57)],
    "01J2VJQV54": [(307181196505662283, 168, 3, 114, 115, 135, 15)],
    "01J2VJQYQV": [(1316973632595159458, 414, 3, 290, 312, 376, 60)],
    "01J2VJR0R3": [
        (13413428935505083408, 312, 6, 199, 205, 253, 55),
        (1316973632595159458, 612, 4, 431, 460, 685, 119),
    ],
    "01JKT3DJRE": [(0, 2115, 2, 1639, 2838, 4954, 905)],
    "01JKT2XEGT": [(0, 35, 1, 22, 29, 41, 9)],
    "01JKT42699": [(0, 35, 1, 22, 29, 41, 9)],
}


def sizes(partition: SymbolPartition) -> tuple[int, ...]:
    (tree,) = partition.trees
    tables = (partition.strings, partition.mappings, partition.functions, partition.locations, tree.parents)
    return (partition.id, *map(len, tables), tree.stack_count)


@st.composite
def partitions(draw: st.DrawFn, partition_id: int = 0) -> SymbolPartition:
    strings = [b"", *draw(st.lists(st.binary(max_size=300), max_size=8))]
    refs = st.integers(0, len(strings) - 1)
    mappings = draw(st.lists(st.builds(Mapping, refs, refs, INT32, UINT64, UINT64, UINT64), min_size=1, max_size=4))
    functions = draw(st.lists(st.builds(Function, refs, refs, refs, INT32), min_size=1, max_size=8))
    lines = st.lists(st.tuples(st.integers(0, len(functions) - 1), INT32), max_size=4).map(tuple)
    addresses = st.one_of(st.just(0), UINT64)
    location = st.builds(Location, st.integers(0, len(mappings) - 1), addresses, lines, st.booleans())
    locations = draw(st.lists(location, min_size=1, max_size=12))
    trees = draw(st.lists(stack_trees(len(locations)), min_size=1, max_size=3))
    max_nodes = draw(st.integers(1, (1 << 32) - 1))
    for tree in trees:
        tree.max_nodes = max_nodes
    return SymbolPartition(partition_id, strings, mappings, functions, locations, trees)


@st.composite
def stack_trees(draw: st.DrawFn, location_count: int) -> StackTree:
    tree = StackTree(stack_count=draw(st.integers(0, 99)))
    for node in range(1, draw(st.integers(1, 20))):
        tree.parents.append(draw(st.integers(0, node - 1)))
        tree.locations.append(draw(st.integers(0, location_count - 1)))
    return tree


def make_section(implementation: Implementation) -> bytes:
    stacks = [("leaf", "middle", "main"), ("other", "main"), ("leaf", "main")]
    return bytes(implementation.encode_symbols([symbol_partition(stacks, 3), symbol_partition(stacks[:1], 1)]))


def index_bounds(data: bytes) -> tuple[int, int]:
    """Return where the index starts and where its checksum stands."""
    return int.from_bytes(data[-16:-8], "big"), len(data) - FOOTER_BYTES - 4


def resealed(data: bytes) -> bytes:
    """Repair the checksum of the index, so that only the damage inside it is found."""
    return with_crc(data, *index_bounds(data))


def header(data: bytes, partition: int, offset: int) -> int:
    """Return the position of a byte of a partition's header; every partition here has one tree."""
    return index_bounds(data)[0] + 32 + 4 + partition * (12 + 64 + 4 * 32) + offset


@pytest.mark.foreign_data
def test_real_sections_re_encode_byte_for_byte(implementation: Implementation, foreign_blocks: ForeignBlocks) -> None:
    sections = [section for block in foreign_blocks.all() for section in block.sections(2)]
    assert len(sections) == 9
    for section in sections:
        assert implementation.encode_symbols(implementation.decode_symbols(section)) == section


@pytest.mark.slow
@pytest.mark.foreign_data
@pytest.mark.parametrize("name", KNOWN_SIZES)
def test_real_sections_hold_what_they_are_known_to(
    implementation: Implementation, foreign_blocks: ForeignBlocks, name: str
) -> None:
    found = [
        sizes(partition)
        for section in foreign_blocks[name].sections(2)
        for partition in implementation.decode_symbols(section)
    ]
    assert found == KNOWN_SIZES[name]


@pytest.mark.foreign_data
def test_an_old_file_with_three_trees_re_encodes_byte_for_byte(
    implementation: Implementation, foreign_data: Path
) -> None:
    data = (foreign_data / "profiles" / "symdb" / "symbols-v3.symdb").read_bytes()
    first, second = implementation.decode_symbols(data)
    assert replace(first, id=1) == second
    assert [len(table) for table in (first.strings, first.mappings, first.functions, first.locations)] == [
        699,
        3,
        506,
        718,
    ]
    assert [(len(tree.parents), tree.stack_count, tree.max_nodes) for tree in first.trees] == [
        (1004, 263, 1024),
        (1001, 252, 1024),
        (314, 515, 1024),
    ]
    assert first.mappings[2].memory_start == (1 << 64) - 10485760
    assert implementation.encode_symbols([first, second]) == data


@pytest.mark.slow
@given(partitions(), partitions(partition_id=(1 << 64) - 1))
@settings(max_examples=60)
def test_what_is_written_is_read(
    implementation: Implementation, first: SymbolPartition, second: SymbolPartition
) -> None:
    assert implementation.decode_symbols(implementation.encode_symbols([second, first])) == [first, second]


def test_full_blocks_and_the_items_after_them_are_kept(implementation: Implementation) -> None:
    for count in (1023, 1024, 1025, 2050):
        partition = symbol_partition([(f"function {number}", "main") for number in range(count)])
        assert implementation.decode_symbols(implementation.encode_symbols([partition])) == [partition]


def test_a_partition_without_any_symbol_is_kept(implementation: Implementation) -> None:
    for partition in (SymbolPartition(), SymbolPartition(strings=[], trees=[])):
        assert implementation.decode_symbols(implementation.encode_symbols([partition])) == [partition]
    assert implementation.decode_symbols(implementation.encode_symbols([])) == []


def test_what_the_format_cannot_hold_is_not_written(implementation: Implementation) -> None:
    long_string = SymbolPartition(strings=[b"", b"x" * 65536])
    location = Location(0, 0, ((0, 1),) * 256)
    mapping, function = Mapping(0, 0, 0, 0, 0, 0), Function(0, 0, 0, 0)
    many_lines = SymbolPartition(mappings=[mapping], functions=[function], locations=[location])
    for partition in (long_string, many_lines):
        with pytest.raises(LimitExceeded):
            implementation.encode_symbols([partition])


def test_every_truncation_is_refused(implementation: Implementation) -> None:
    data = make_section(implementation)
    assert all(refuses(implementation.decode_symbols, cut, "symbols") for cut in truncations(data))


def test_every_flipped_byte_is_refused(implementation: Implementation) -> None:
    data = make_section(implementation)
    for offset, damaged in flips(data):
        assert refuses(implementation.decode_symbols, damaged, "symbols"), f"byte {offset} of {len(data)}"


@given(st.binary(max_size=200))
def test_no_bytes_do_worse_than_a_typed_error(implementation: Implementation, data: bytes) -> None:
    refuses(implementation.decode_symbols, data, "symbols")


@given(st.data())
@settings(max_examples=150)
def test_a_damaged_index_with_a_right_checksum_does_no_worse(
    implementation: Implementation, data: st.DataObject
) -> None:
    section = make_section(implementation)
    start, end = index_bounds(section)
    offset = data.draw(st.integers(start, end - 4))
    damaged = patched(section, offset, data.draw(st.binary(min_size=1, max_size=min(8, end - offset))))
    refuses(implementation.decode_symbols, resealed(damaged), "symbols")


@pytest.mark.parametrize(
    ("offset", "value", "error"),
    [
        (8, b"\xff\xff\xff\xff", LimitExceeded),  # number of trees
        (12 + 8, b"\xff" * 8, BadObject),  # size of the tree
        (12 + 27, b"\x02", UnknownFormat),  # encoding of the tree
        (12 + 36, b"\xff\xff\xff\xff", LimitExceeded),  # nodes of the tree
        (76, b"\xff" * 8, BadObject),  # offset of the locations
        (76 + 16, b"\xff\xff\xff\xff", LimitExceeded),  # number of locations
        (76 + 20, bytes(4), BadObject),  # locations per block
        (76 + 26, b"\x00\x09", UnknownFormat),  # format of the locations
    ],
)
def test_an_index_that_promises_the_absurd_is_refused(
    implementation: Implementation, offset: int, value: bytes, error: type[BadObject]
) -> None:
    data = make_section(implementation)
    with pytest.raises(error):
        implementation.decode_symbols(resealed(patched(data, header(data, 0, offset), value)))


def test_a_partition_twice_is_refused(implementation: Implementation) -> None:
    data = make_section(implementation)
    twice = patched(data, header(data, 1, 0), data[header(data, 0, 0) : header(data, 0, 8)])
    with pytest.raises(BadObject, match="order"):
        implementation.decode_symbols(resealed(twice))


def test_partitions_that_share_their_bytes_are_refused(implementation: Implementation) -> None:
    """Many small headers over the same large tables would cost the product of both."""
    data = make_section(implementation)
    first = data[header(data, 0, 8) : header(data, 1, 0)]
    second_size = len(data[header(data, 1, 8) : header(data, 2, 0)])
    assert len(first) == second_size
    large = header(data, 1, 8)
    shared = patched(data, header(data, 0, 8), data[large : large + second_size])
    with pytest.raises(LimitExceeded):
        implementation.decode_symbols(resealed(shared))


BAD_PARTITIONS: dict[str, Callable[[SymbolPartition], object]] = {
    "mapping file name": lambda p: p.mappings.append(Mapping(99, 0, 0, 0, 0, 0)),
    "mapping build id": lambda p: p.mappings.append(Mapping(0, -1, 0, 0, 0, 0)),
    "function name": lambda p: p.functions.append(Function(99, 0, 0, 0)),
    "function file name": lambda p: p.functions.append(Function(0, 0, -5, 0)),
    "location mapping": lambda p: p.locations.append(Location(7, 0, ())),
    "location function": lambda p: p.locations.append(Location(0, 0, ((99, 1),))),
    "negative function": lambda p: p.locations.append(Location(0, 0, ((-1, 1),))),
    "tree location": lambda p: p.trees[0].locations.__setitem__(1, 99),
    "a node that is its own parent": lambda p: p.trees[0].parents.__setitem__(1, 1),
    "a cycle of two nodes": lambda p: p.trees[0].parents.__setitem__(1, 2),
    "a second root": lambda p: p.trees[0].parents.__setitem__(1, -1),
    "a root with a parent": lambda p: p.trees[0].parents.__setitem__(0, 0),
}


@pytest.mark.parametrize("what", BAD_PARTITIONS)
def test_references_out_of_range_and_cycles_are_refused(implementation: Implementation, what: str) -> None:
    partition = symbol_partition([("leaf", "middle", "main")])
    implementation.decode_symbols(implementation.encode_symbols([partition]))
    BAD_PARTITIONS[what](partition)
    written_anyway = _symbols_py.encode_symbols([partition])
    with pytest.raises(BadReference):
        implementation.decode_symbols(written_anyway)


def test_lines_without_any_function_are_read_but_mean_nothing(implementation: Implementation) -> None:
    partition = symbol_partition([("leaf",)])
    partition.functions.clear()
    assert implementation.decode_symbols(implementation.encode_symbols([partition])) == [partition]


def dense(kind: str, count: int) -> SymbolPartition:
    """Return a partition with many equal symbols of one kind, which take next to nothing in a section."""
    found = symbol_partition([("leaf",)])
    if kind == "functions":
        found.functions += [found.functions[0]] * count
    elif kind == "mappings":
        found.mappings += [found.mappings[0]] * count
    elif kind == "strings":
        found.strings += [b""] * count
    elif kind == "nodes":
        found.trees[0].parents += [0] * count
        found.trees[0].locations += [0] * count
    elif kind == "lines":
        line = found.locations[0].lines[0]
        found.locations += [replace_lines(found.locations[0], (line,) * 255)] * (count // 255)
    else:
        found.locations += [replace_lines(found.locations[0], ())] * count
    return found


def replace_lines(location: Location, lines: tuple[tuple[int, int], ...]) -> Location:
    return Location(location.mapping, location.address, lines, location.is_folded)


DENSE_SIZES = {"strings": 16, "functions": 16, "mappings": 40, "lines": 8, "locations": 24, "nodes": 8}


@pytest.mark.slow
@pytest.mark.parametrize("kind", DENSE_SIZES)
def test_a_section_that_decodes_to_far_more_than_its_bytes_is_refused(
    implementation: Implementation, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(symbol_limits, "DECODED_RATIO_MAX", 1)
    free = DECODED_FREE_BYTES // DENSE_SIZES[kind]
    fits = implementation.encode_symbols([dense(kind, free * 9 // 10)])
    if implementation.decode_symbols is not _symbols_py.decode_symbols:  # the twin takes no more items than bytes
        implementation.decode_symbols(fits)
    too_much = implementation.encode_symbols([dense(kind, free * 11 // 10)])
    with pytest.raises(LimitExceeded):
        implementation.decode_symbols(too_much)


def test_the_twin_charges_lines_before_it_decodes_them() -> None:
    lines = ((1, 1),) * 200
    data = _symbol_tables_py.write_locations([Location(0, 0, lines, False)] * 100)

    def refuse(count: int) -> None:
        raise LimitExceeded("symbols", 0, f"{count} lines")

    cut = data[: 28 + 200]  # the header, and not all of the columns
    with pytest.raises(LimitExceeded, match="20000 lines"):
        _symbol_tables_py.read_locations(ByteReader(cut, "symbols"), 100, refuse)


@pytest.mark.slow
def test_the_bounds_of_partitions_add_up(implementation: Implementation) -> None:
    strings = [b"", *(b"%d" % number for number in range(25_000))]
    parts = [replace(dense("functions", 25_000), id=number, strings=strings) for number in range(3)]
    for count, is_refused in ((1, False), (3, True)):
        section = implementation.encode_symbols(parts[:count])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(symbol_limits, "DECODED_RATIO_MAX", 4)
            if is_refused:
                with pytest.raises(LimitExceeded, match="decode to far more"):
                    implementation.decode_symbols(section)
            else:
                implementation.decode_symbols(section)


def test_the_bound_is_an_absolute_one_at_last() -> None:
    assert decoded_bytes_max(1) == DECODED_FREE_BYTES
    assert decoded_bytes_max(DECODED_FREE_BYTES) == DECODED_RATIO_MAX * DECODED_FREE_BYTES
    assert decoded_bytes_max(1 << 40) == DECODED_BYTES_MAX
    # What questions reserve for a dataset covers what its symbols decode to.
    assert UNDER_WAY_FACTOR >= DECODED_RATIO_MAX
