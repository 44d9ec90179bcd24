"""Known-answer test of executors: they must run the same build as this node and compute the same results.

Answers of executors are compared with those of this process: versions, kernels and bytes. A session that fails the test
accepts no work, because nodes with different builds would write different blocks.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from engine.core.kernels import implementation_of
from engine.core.version import VERSION
from spark.errors import ExecutorsDiffer
from spark.frames import run_work_items

KERNELS = (
    *("formats.profile_block.series._series_index", "formats.profile_block.symbols._symbols", "formats.pprof._pprof"),
    *("formats.prometheus.index._postings_lists", "formats.prometheus.index._series_entries"),
    *("formats.prometheus.index._symbol_merge", "formats.prometheus.index._symbol_positions"),
    *("formats.prometheus.chunks._xor", "formats.ranges._entry_blocks"),
    *("lanes.profiles.merge._dataset_merge", "lanes.tsdb.merge._series_hashes", "lanes.tsdb.merge._series_merge"),
    *("lanes.tables.merge._row_hashes", "lanes.tables.merge._row_order"),
)
"""Kernels of the engine that merges use."""
PACKAGES = ("pyarrow", "numpy", "zstandard", "google.protobuf")
DISTRIBUTIONS = ("datasketches",)
"""Packages without ``__version__``."""
CRC32C_OF_DIGITS = 0xE3069283
"""The published check value: CRC-32C of the ASCII digits 1 to 9."""
PROBE_BUDGET_BYTES = 64 << 20
DEFAULT_TASKS = 4
FAILED = "failed: "
RESULT_DDL = "name string, answer string"


def probe(spark: SparkSession, tasks: int = DEFAULT_TASKS) -> dict[str, str]:
    """Run the known-answer test in ``tasks`` tasks and return the answers; ExecutorsDiffer names each difference."""
    expected = known_answers()
    _check_expected_values(expected)
    work_items = pa.table({"task": pa.array(range(tasks), pa.int32())})
    answers = run_work_items(spark, work_items, answer_on_executor, RESULT_DDL)
    found = list(zip(answers["name"].to_pylist(), answers["answer"].to_pylist(), strict=True))
    if len(found) != tasks * len(expected):
        raise ExecutorsDiffer((f"{tasks} tasks returned {len(found)} answers, not {tasks * len(expected)}",))
    differences = {
        f"{name} is {answer!r} on an executor and {expected.get(name)!r} here"
        for name, answer in found
        if expected.get(name) != answer
    }
    if differences:
        raise ExecutorsDiffer(tuple(sorted(differences)))
    return expected


def answer_on_executor(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the known answers once per row, on an executor."""
    for batch in batches:
        for _ in range(batch.num_rows):
            answers = known_answers()
            yield pa.record_batch(
                {"name": pa.array(answers.keys(), pa.string()), "answer": pa.array(answers.values(), pa.string())}
            )


def known_answers() -> dict[str, str]:
    """Return the answers that must be equal on every machine; a failed question is answered by its error."""
    questions: dict[str, Callable[[], str]] = {
        "lithify": lambda: VERSION,
        "python": lambda: ".".join(platform.python_version_tuple()[:2]),
        **{package: partial(_version, package) for package in PACKAGES},
        **{name: partial(importlib.metadata.version, name) for name in DISTRIBUTIONS},
        **{f"kernel {kernel}": partial(implementation_of, f"engine.{kernel}") for kernel in KERNELS},
        "crc32c": _crc32c,
        "series index": _series_index,
        "samples of merged blocks": lambda: _merged_blocks()[0],
        "bytes of merged blocks": lambda: _merged_blocks()[1],
        "rows of merged files": lambda: _merged_files()[0],
        "bytes of merged files": lambda: _merged_files()[1],
    }
    answers = {}
    for name, question in questions.items():
        try:
            answers[name] = question()
        except Exception as error:  # noqa: BLE001  any error is an answer to compare
            answers[name] = f"{FAILED}{type(error).__name__}: {error}"
    return answers


def _check_expected_values(answers: dict[str, str]) -> None:
    """Compare with independently known values, so that machines with the same error do not pass."""
    expected = {
        "crc32c": f"{CRC32C_OF_DIGITS:08x}",
        "series index": "round trip",
        "samples of merged blocks": "up 1000=1.0 1015=2.0 1030=4.0",
        "rows of merged files": "1 a, 2 None, 3 b, 3 c",
    }
    wrong = tuple(
        f"{name} is {answer!r} here"
        for name, answer in answers.items()
        if answer != expected.get(name, answer) or answer.startswith(FAILED)
    )
    if wrong:
        raise ExecutorsDiffer(wrong)


def _version(package: str) -> str:
    return str(importlib.import_module(package).__version__)


def _crc32c() -> str:
    from engine.core.checksums import crc32c

    return f"{crc32c(b'123456789'):08x}"


def _series_index() -> str:
    from engine.formats.profile_block.model import IndexedSeries
    from engine.formats.profile_block.series.series_index import decode_series_index, encode_series_index

    series = [
        IndexedSeries(
            fingerprint=0x0123456789ABCDEF,
            labels=((b"__name__", b"process_cpu"), (b"service_name", b"known")),
            min_time_ns=1_700_000_000_000_000_000,
            max_time_ns=1_700_000_001_000_000_000,
            position=0,
        )
    ]
    decoded = decode_series_index(encode_series_index(series))
    return "round trip" if list(decoded) == series else f"{series} became {decoded}"


def _merged_blocks() -> tuple[str, str]:
    """Merge two small blocks of one series and return its samples, and the checksums of what was written."""
    from engine.core import ulids
    from engine.core.checksums import crc32c
    from engine.formats.prometheus.block_reader import BlockReader
    from engine.lanes.tsdb.merge.merge import MergeRules, merge_blocks

    names = [ulids.make(number, bytes(ulids.ENTROPY_BYTES)) for number in range(3)]
    with tempfile.TemporaryDirectory(prefix="lithify-probe-") as folder:
        parent = Path(folder)
        _write_block(parent, names[0], {1000: 1.0, 1015: 2.0})
        _write_block(parent, names[1], {1015: 2.0, 1030: 4.0})
        sources = [parent / name for name in names[:2]]
        merge_blocks(sources, parent, names[2], rules=MergeRules(), budget_bytes=PROBE_BUDGET_BYTES)
        block = BlockReader(parent / names[2])
        words = []
        for series in block.index.series():
            words.append(series.labels[0][1].decode())
            for meta in series.chunks:
                times, values = block.floats(meta, block.chunk(meta))
                words += [f"{at}={value}" for at, value in zip(times.tolist(), values.view("f8").tolist(), strict=True)]
        files = (parent / names[2] / name for name in ("index", "chunks/000001"))
        return " ".join(words), " ".join(f"{crc32c(file.read_bytes()):08x}" for file in files)


def _merged_files() -> tuple[str, str]:
    """Merge two small Parquet files and return the rows, and the checksum of what was written."""
    import pyarrow.parquet as pq

    from engine.lanes.tables.jobs import TableChunk, TableFile, TableMergeSpec
    from engine.lanes.tables.merge import merge_job
    from engine.storage import open_store

    with tempfile.TemporaryDirectory(prefix="lithify-probe-") as folder:
        root = Path(folder) / "table"
        root.mkdir()
        files = []
        for name, times, words in (("1", [2, 3], [None, "b"]), ("2", [3, 1], ["c", "a"])):
            pq.write_table(pa.table({"at": pa.array(times, pa.timestamp("ms")), "word": words}), root / name)
            files.append(TableFile(path=name, size=(root / name).stat().st_size, rows=2))
        spec = TableMergeSpec(
            job="probe",
            tenant="",
            source="probe",
            url=root.as_uri(),
            chunks=(TableChunk(start_ms=0, end_ms=10, files=tuple(files)),),
            time_column="at",
        )
        (output,) = merge_job.run(spec, open_store(spec.url), scratch=Path(folder) / "scratch").outputs
        rows = pq.read_table(root / output.path)
        times = rows.column("at").cast(pa.int64()).to_pylist()
        words = rows.column("word").to_pylist()
        merged = ", ".join(f"{at} {word}" for at, word in zip(times, words, strict=True))
        return merged, f"{output.crc32c:08x}"


def _write_block(parent: Path, name: str, samples: dict[int, float]) -> None:
    import numpy as np

    from engine.formats.prometheus.block_writer import BlockWriter
    from engine.formats.prometheus.chunks.xor import encode_xor
    from engine.formats.prometheus.index.series_batch import series_batch
    from engine.formats.prometheus.meta import BlockMeta, BlockStats, Compaction
    from engine.formats.prometheus.model import ENCODING_XOR, Chunk, ChunkMeta

    times = np.array(list(samples), np.int64)
    chunk = Chunk(ENCODING_XOR, encode_xor(times, np.array(list(samples.values()), np.float64).view(np.uint64)))
    with BlockWriter(parent, name, (b"__name__", b"up")) as writer:
        (ref,) = writer.write_chunks([chunk])
        writer.add_series(series_batch([((0, 1), (ChunkMeta(int(times[0]), int(times[-1]), ref),))]))
        writer.finish(BlockMeta(name, int(times[0]), int(times[-1]) + 1, BlockStats(), Compaction(1, (name,))))
