"""How fast layers are applied on a metarange: entries read of layers and of ranges, per second of one core.

Entries have keys of 34 bytes and values of about 155 bytes (an object's address, checksum, size, time). Every tenth
entry of the base is changed; the files lie in the store's folder, written and synced as ever. ``kernel`` is the merge
of blocks in memory alone, with checksums and hashes of the files.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

from engine.catalog import _entry_blocks_py, entry_blocks
from engine.catalog.apply import apply_layers
from engine.catalog.files import CatalogFiles
from engine.catalog.layout import Kind, SplitRules
from engine.catalog.model import Row
from engine.catalog.range_file import FileBuilder
from engine.catalog.runs import Layer, StagedRun, memory_run
from engine.storage import open_store
from tests.bench.figures import Figures, cpu_seconds

NAME = "catalog_compact"
ENTRIES, ENTRIES_FULL = 1_000_000, 5_000_000
TOKENS = 3
TWIN_ENTRIES = 20_000
REPEATS = 3


def run(full: bool = False) -> Figures:
    """Measure; times are CPU time of this process, the best of the repeats."""
    entries = ENTRIES_FULL if full else ENTRIES
    whole = memory_run(rows(range(entries), "v"))
    uniform = tokens(random.Random(8).sample(range(entries), entries // 10))
    clustered = tokens(range(entries // 2, entries // 2 + entries // 10))
    with tempfile.TemporaryDirectory() as folder:
        files = CatalogFiles(open_store(Path(folder).as_uri()))
        base = apply_layers(files, files.write_metarange([])[0], [Layer(whole)]).metarange
        figures: dict[str, float] = {}
        for name, layers in (("uniform", uniform), ("clustered", clustered)):
            result = apply_layers(files, base, layers)
            seconds = min(cpu_seconds(lambda layers=layers: apply_layers(files, base, layers)) for _ in range(REPEATS))  # type: ignore[misc]
            figures[f"bytes_{name}_ratio"] = result.bytes_written / result.counts.bytes_changed
            if name == "uniform":
                figures["entries_per_s_core"] = result.counts.rows_read / seconds
    runs = [layer.run for layer in uniform]
    kernel = (
        entries * 1.1 / min(cpu_seconds(lambda: merge(entry_blocks.merge_blocks, runs, whole)) for _ in range(REPEATS))
    )
    few = [memory_run(rows(range(0, TWIN_ENTRIES, 10), "w"))], memory_run(rows(range(TWIN_ENTRIES), "v"))
    twin = cpu_seconds(lambda: merge(_entry_blocks_py.merge_blocks, *few))
    ours = cpu_seconds(lambda: merge(entry_blocks.merge_blocks, *few))
    return Figures(
        parameters={"implementation": entry_blocks.IMPLEMENTATION, "entries": entries, "tokens": TOKENS},
        figures=figures | {"kernel_entries_per_s_core": kernel, "speedup_over_twin": twin / ours},
    )


def rows(numbers: range | list[int], value: str) -> Iterator[Row]:
    """The entries of these numbers, in order."""
    for number in numbers:
        key = b"data/date=%04d/part-%08d.parquet" % (number // 5_000, number)
        names = f'"address":"objects/{number * 7_919:032x}","checksum":"{number * 104_729:032x}"'
        payload = f'{{{names},"size":{number},"written_at":1700000000}}'
        yield key, b"%s%015d" % (value.encode(), number), payload.encode()


def tokens(changed: range | list[int]) -> list[Layer]:
    """Layers in which each of these entries is changed once."""
    ordered = sorted(changed)
    return [Layer(memory_run(rows(ordered[token::TOKENS], f"{token}"))) for token in range(TOKENS)]


def merge(kernel: object, layers: list[StagedRun], base: StagedRun) -> None:
    """Merge in memory, with what makes files of blocks."""
    kernel(  # type: ignore[operator]
        [layer.blocks() for layer in layers],
        base.blocks(),
        [()] * (len(layers) + 1),
        FileBuilder(Kind.RANGE, lambda info, data: None),
        SplitRules(),
        None,
        None,
    )
