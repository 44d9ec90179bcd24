"""Speed of applying layers to a metarange: entries read from layers and ranges, per second of one core.

Entries have keys of 34 bytes and values of about 155 bytes (an object's address, checksum, size, time). Every tenth
entry of the base is changed; the files are in the store's folder, written and synced as in production. ``kernel`` is
the merge of blocks in memory alone, with checksums and hashes of the files. ``_spark`` is the uniform change on a warm
session of two cores, with all processor time of the JVM and its Python processes.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from engine.core.kernels import implementation_of
from engine.formats.ranges import _entry_blocks_py, entry_blocks
from engine.formats.ranges.layout import Kind, SplitRules
from engine.formats.ranges.model import Row
from engine.formats.ranges.range_file import FileBuilder
from engine.lanes.catalog.apply import apply_layers
from engine.lanes.catalog.files import CatalogFiles
from engine.lanes.catalog.jobs import CatalogCompactResult
from engine.lanes.catalog.runs import Layer, StagedRun, memory_run
from engine.storage import open_store
from tests.bench.figures import Figures, cpu_seconds, process_seconds
from tests.engine.lanes.catalog.compact_jobs import spec_of_rows

NAME = "catalog_compact"
ENTRIES, ENTRIES_FULL = 1_000_000, 5_000_000
TOKENS = 3
TWIN_ENTRIES = 20_000
REPEATS = 3


def run(full: bool = False) -> Figures:
    """Run the benchmark; times are CPU time of this process, the minimum of the repeats."""
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
    figures["entries_per_s_core_spark"] = on_spark(entries)
    return Figures(
        parameters={
            "implementation": implementation_of("engine.formats.ranges._entry_blocks"),
            "entries": entries,
            "tokens": TOKENS,
        },
        figures=figures | {"kernel_entries_per_s_core": kernel, "speedup_over_twin": twin / ours},
    )


def rows(numbers: range | list[int], value: str) -> Iterator[Row]:
    """Yield the entries of these numbers, in order."""
    for number in numbers:
        key = b"data/date=%04d/part-%08d.parquet" % (number // 5_000, number)
        names = f'"address":"objects/{number * 7_919:032x}","checksum":"{number * 104_729:032x}"'
        payload = f'{{{names},"size":{number},"written_at":1700000000}}'
        yield key, b"%s%015d" % (value.encode(), number), payload.encode()


def tokens(changed: range | list[int]) -> list[Layer]:
    """Return layers in which each of these entries is changed once."""
    ordered = sorted(changed)
    return [Layer(memory_run(rows(ordered[token::TOKENS], f"{token}"))) for token in range(TOKENS)]


def on_spark(entries: int) -> float:
    """Return the rate of the uniform change on Spark, measured in a subprocess."""
    program = [sys.executable, "-m", "tests.bench.catalog_compact", str(entries)]
    answer = subprocess.run(program, stdout=subprocess.PIPE, check=True, text=True)
    return float(json.loads(answer.stdout.splitlines()[-1]))


def measure_spark(entries: int) -> float:
    """Return entries read per second of all cores' time, the maximum of the repeats after a warm-up."""
    from spark.jobs import catalog_compact
    from spark.session import make_session
    from spark.settings import SparkSettings

    rates = []
    with tempfile.TemporaryDirectory() as folder:
        store = open_store((Path(folder) / "store").as_uri())
        files = CatalogFiles(store)
        whole = memory_run(rows(range(entries), "v"))
        base = apply_layers(files, files.write_metarange([])[0], [Layer(whole)]).metarange
        changed = sorted(random.Random(8).sample(range(entries), entries // 10))
        spec = spec_of_rows(
            files, base, [rows(changed[token::TOKENS], f"{token}") for token in range(TOKENS)], SplitRules()
        )
        spark = make_session(SparkSettings(master="local[2]", scratch=Path(folder) / "spark"))
        for number in range(REPEATS + 1):
            begun = process_seconds(os.getpid())
            result = catalog_compact.run(spark, [spec], store.url, tag=f"bench-{number}")["job"]
            assert isinstance(result, CatalogCompactResult), result
            rates.append(result.rows_read / (process_seconds(os.getpid()) - begun))
        spark.stop()
    return max(rates[1:])


def merge(kernel: object, layers: list[StagedRun], base: StagedRun) -> None:
    """Merge in memory, including the encoding of blocks as files."""
    kernel(  # type: ignore[operator]
        [layer.blocks() for layer in layers],
        base.blocks(),
        [()] * (len(layers) + 1),
        FileBuilder(Kind.RANGE, lambda info, data: None),
        SplitRules(),
        None,
        None,
    )


if __name__ == "__main__":
    print(measure_spark(int(sys.argv[1])))
