"""Merged stacks as pprof: everything that symbols say is kept, and Go's own tool reads the same totals."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import LimitExceeded
from engine.formats.pprof.pprof import parse_profile
from engine.formats.pprof.pprof_encode import encode_profile
from engine.formats.pprof.pprof_model import Profile
from engine.formats.profile_block.model import Function, Location, Mapping, StackTree, SymbolPartition
from engine.formats.profile_block.series.series_index import decode_series_index
from engine.formats.profile_block.symbols.symbols import decode_symbols
from engine.formats.profile_block.table.profile_table import SAMPLES, ProfileTableReader
from engine.query.flame import pprof_tree
from engine.query.flame.pprof_tree import OTHER, Binary, Place, SourceFunction, location_table, pprof_profile
from engine.query.flame.stack_table import stack_table
from engine.query.flame.top_table import top_table
from engine.query.flame.tree import FlameTree
from tests.engine.conftest import ForeignBlocks
from tests.go_pprof import needs_pprof, run_pprof

CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
TIME_NS = 1_739_264_694_822_565_000


def partition(shift: int = 0) -> SymbolPartition:
    """main calls work, in which parse is inlined, and something of a library; ``shift`` renumbers the functions."""
    functions = [Function(1, 1, 4, 10), Function(2, 2, 4, 20), Function(3, 3, 4, 30)]
    refs = [(ref + shift) % 3 for ref in range(3)]
    return SymbolPartition(
        strings=[b"", b"main", b"work", b"parse", b"app.go", b"/lib/libc.so", b"build"],
        mappings=[Mapping(0, 0, 8, 0, 0, 0), Mapping(5, 6, 0, 0x1000, 0x2000, 7)],
        functions=[functions[refs.index(ref)] for ref in range(3)],
        locations=[
            Location(0, 0, ((refs[0], 11),)),
            Location(0, 0, ((refs[2], 33), (refs[1], 22))),
            Location(1, 0x1234, (), True),
        ],
        trees=[StackTree([-1, 0, 1, 2, 1], [0, 0, 1, 2, 2])],
    )


def made(tree: FlameTree, max_nodes: int = 0) -> Profile:
    return pprof_profile(
        tree,
        sample_type=("cpu", "nanoseconds"),
        period_type=("cpu", "nanoseconds"),
        period=10_000_000,
        time_ns=TIME_NS,
        duration_ns=15,
        max_nodes=max_nodes,
    )


def samples_of(profile: Profile) -> dict[tuple[Place, ...], int]:
    """Return the profile's stacks, leaf first, everything resolved."""
    strings, mappings, functions, locations = (
        profile.strings,
        profile.mappings,
        profile.functions,
        profile.locations,
    )
    assert (locations.ids == np.arange(1, len(locations) + 1)).all()
    assert len(set(strings)) == len(strings)
    assert strings[0] == b""

    def place(position: int) -> Place:
        lines = []
        for at in range(locations.line_starts[position], locations.line_starts[position + 1]):
            own = int(locations.line_function_ids[at]) - 1
            texts = (functions.names[own], functions.system_names[own], functions.filenames[own])
            function = SourceFunction(*(strings[text] for text in texts), int(functions.start_lines[own]))
            lines.append((function, int(locations.line_numbers[at])))
        binary = int(locations.mapping_ids[position]) - 1
        return Place(
            tuple(lines),
            int(locations.addresses[position]),
            Binary(
                strings[mappings.filenames[binary]],
                strings[mappings.build_ids[binary]],
                int(mappings.flags[binary]),
                int(mappings.memory_starts[binary]),
                int(mappings.memory_limits[binary]),
                int(mappings.file_offsets[binary]),
            ),
            bool(locations.folded[position]),
        )

    samples = profile.samples
    found: dict[tuple[Place, ...], int] = {}
    for sample in range(len(samples)):
        ids = samples.location_ids[samples.location_starts[sample] : samples.location_starts[sample + 1]]
        stack = tuple(place(int(one) - 1) for one in ids)
        assert stack not in found
        found[stack] = int(samples.values[sample])
    return found


MAIN = Place(((SourceFunction(b"main", b"main", b"app.go", 10), 11),), 0, Binary(flags=8))
WORK = Place(
    (
        (SourceFunction(b"parse", b"parse", b"app.go", 30), 33),
        (SourceFunction(b"work", b"work", b"app.go", 20), 22),
    ),
    0,
    Binary(flags=8),
)
LIBRARY = Place((), 0x1234, Binary(b"/lib/libc.so", b"build", 0, 0x1000, 0x2000, 7), True)


def merged() -> FlameTree:
    tree = FlameTree()
    tree.add_stacks(location_table(partition()), [2, 3, 4, 0], [1, 2, 4, 100])
    tree.add_stacks(location_table(partition(shift=1)), [2, 4, 1], [10, 20, 40])
    return tree


def test_all_symbol_fields_are_kept() -> None:
    profile = parse_profile(encode_profile(made(merged())))
    profile.check()
    assert samples_of(profile) == {
        (): 100,
        (MAIN,): 40,
        (WORK, MAIN): 11,
        (LIBRARY, WORK, MAIN): 2,
        (LIBRARY, MAIN): 24,
    }
    strings = profile.strings
    assert [(strings[kind], strings[unit]) for kind, unit in profile.sample_types] == [(b"cpu", b"nanoseconds")]
    assert strings[profile.default_sample_type] == b"cpu"
    assert tuple(strings[ref] for ref in profile.period_type) == (b"cpu", b"nanoseconds")
    assert (profile.period, profile.time_ns, profile.duration_ns) == (10_000_000, TIME_NS, 15)


def test_a_cut_profile_has_places_called_other_and_the_same_total() -> None:
    assert samples_of(made(merged(), max_nodes=2)) == {(): 100, (MAIN,): 40, (LIBRARY, MAIN): 24, (OTHER, MAIN): 13}


def test_a_tree_of_names_becomes_a_profile_of_names() -> None:
    tree = FlameTree()
    for stack, value in (([b"main", b"work"], 5), ([b"main", b"idle"], 1), ([b"gc"], 2)):
        tree.add_stack(stack, value)

    def named(*names: bytes) -> tuple[Place, ...]:
        return tuple(Place(((SourceFunction(name, name), 0),)) for name in names)

    assert samples_of(made(tree, max_nodes=2)) == {
        named(b"work", b"main"): 5,
        named(b"other", b"main"): 1,
        named(b"other"): 2,
    }
    assert len(made(FlameTree()).samples) == 0


def test_lines_mean_nothing_without_functions() -> None:
    bare = partition()
    bare.functions = []
    tree = FlameTree()
    tree.add_stacks(location_table(bare), [3], [1])
    assert samples_of(made(tree)) == {(LIBRARY, Place((), 0, MAIN.binary), Place((), 0, MAIN.binary)): 1}


def test_samples_that_repeat_their_callers_too_often_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = FlameTree()
    for depth in range(1, 20):
        tree.add_stack([MAIN] * depth, 1)
    monkeypatch.setattr(pprof_tree, "LOCATION_IDS_MAX", 190)
    assert len(made(tree).samples) == 19
    monkeypatch.setattr(pprof_tree, "LOCATION_IDS_MAX", 189)
    with pytest.raises(LimitExceeded, match="190 location ids"):
        made(tree)


@given(st.dictionaries(st.lists(st.sampled_from([MAIN, WORK, LIBRARY, OTHER]), max_size=5).map(tuple), st.integers(1)))
def test_a_profile_has_the_stacks_of_its_tree(stacks: dict[tuple[Place, ...], int]) -> None:
    small = {stack: value % 1000 + 1 for stack, value in stacks.items()}
    tree = FlameTree()
    for stack, value in small.items():
        tree.add_stack(reversed(stack), value)
    assert samples_of(parse_profile(encode_profile(made(tree)))) == small


def go_top(path: Path, folder: Path) -> tuple[int, dict[str, tuple[int, int]]]:
    """Return the total and each function's (own value, total) as Go's pprof prints them."""
    options = ["-top", "-unit=nanoseconds", "-nodecount=100000", "-nodefraction=0", "-symbolize=none"]
    printed = run_pprof(folder, *options, str(path))
    total = re.search(r" of (\d+)ns total", printed)
    assert total, printed
    rows = re.findall(r"^ *(\d+)(?:ns)? +[\d.]+% +[\d.]+% +(\d+)(?:ns)? +[\d.]+% +(.*)$", printed, re.MULTILINE)
    return int(total[1]), {
        re.sub(r" \((partial-)?inline\)$", "", name): (int(own), int(whole)) for own, whole, name in rows
    }


@needs_pprof
@pytest.mark.foreign_data
def test_gos_own_tool_reads_the_same_totals(foreign_blocks: ForeignBlocks, tmp_path: Path) -> None:
    block = foreign_blocks["01JKT2XEGT"]
    (rows,), (series,), (symbols,) = (list(block.sections(number)) for number in range(3))
    wanted = {one.position for one in decode_series_index(series) if (b"__profile_type__", CPU.encode()) in one.labels}
    (own,) = decode_symbols(symbols)
    tables = location_table(own), stack_table(own)
    trees = FlameTree(), FlameTree()
    for batch in ProfileTableReader(rows).batches():
        samples = batch.column(SAMPLES)
        for row, number in enumerate(batch.column("SeriesIndex").to_pylist()):
            if number in wanted:
                start, end = samples.offsets[row].as_py(), samples.offsets[row + 1].as_py()
                stack_ids = samples.values.field(0)[start:end].to_numpy()
                values = samples.values.field(1)[start:end].to_numpy()
                for tree, table in zip(trees, tables, strict=True):
                    tree.add_stacks(table, table.nodes_of(stack_ids), values)
    assert trees[0].total == trees[1].total == 349200000000
    path = tmp_path / "merged.pb.gz"
    path.write_bytes(encode_profile(made(trees[0])))
    total, functions = go_top(path, tmp_path)
    assert total == 349200000000
    assert functions == {row.name: (row.own, row.total) for row in top_table(trees[1])}
