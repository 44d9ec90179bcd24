"""Known-answer test of executors: they must run the same build as this node and compute the same results.

Answers of executors are compared with those of this process: versions, kernels and bytes. A session that fails the test
accepts no work, because nodes with different builds would write different blocks.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from engine.core.kernels import implementation_of
from engine.core.version import VERSION
from engine.settings.lanes import listed_lanes
from spark.errors import ExecutorsDiffer
from spark.frames import run_work_items
from spark.lanes.manifest import spark_lanes

KERNELS = (
    *("engine.formats.profile_block.series._series_index", "engine.formats.profile_block.symbols._symbols"),
    *("engine.formats.pprof._pprof", "engine.formats.prometheus.chunks._xor"),
    *("engine.formats.prometheus.index._postings_lists", "engine.formats.prometheus.index._series_entries"),
    *("engine.formats.prometheus.index._symbol_merge", "engine.formats.prometheus.index._symbol_positions"),
    "engine.formats.ranges._entry_blocks",
)
"""Kernels of formats, beside those of lanes."""
PACKAGES = ("pyarrow", "numpy", "zstandard", "google.protobuf")
DISTRIBUTIONS = ("datasketches",)
"""Packages without ``__version__``."""
CRC32C_OF_DIGITS = 0xE3069283
"""The published check value: CRC-32C of the ASCII digits 1 to 9."""
DEFAULT_TASKS = 4
FAILED = "failed: "
RESULT_DDL = "name string, answer string"


def probe(spark: SparkSession, tasks: int = DEFAULT_TASKS) -> dict[str, str]:
    """Run the known-answer test in ``tasks`` tasks and return the answers; ExecutorsDiffer names each difference."""
    lanes = listed_lanes()
    expected = known_answers(lanes)
    _check_expected_values(expected, lanes)
    # Executors on other machines have another environment.
    work_items = pa.table({"lanes": pa.array([lanes] * tasks, pa.list_(pa.string()))})
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
        for lanes in batch.column("lanes").to_pylist():
            answers = known_answers(lanes)
            yield pa.record_batch(
                {"name": pa.array(answers.keys(), pa.string()), "answer": pa.array(answers.values(), pa.string())}
            )


def known_answers(lanes: Sequence[str]) -> dict[str, str]:
    """Return the answers that must be equal on every machine; a failed question is answered by its error."""
    found = spark_lanes(lanes).values()
    kernels = [kernel for lane in found for kernel in lane.kernels]
    questions: dict[str, Callable[[], str]] = {
        "lithify": lambda: VERSION,
        "python": lambda: ".".join(platform.python_version_tuple()[:2]),
        **{package: partial(_version, package) for package in PACKAGES},
        **{name: partial(importlib.metadata.version, name) for name in DISTRIBUTIONS},
        **{f"kernel {kernel}": partial(implementation_of, kernel) for kernel in (*KERNELS, *kernels)},
        "crc32c": _crc32c,
        "series index": _series_index,
    }
    answers = {}
    for name, question in questions.items():
        try:
            answers[name] = question()
        except Exception as error:  # noqa: BLE001  any error is an answer to compare
            answers[name] = _failed(error)
    for lane in found:
        try:
            answers.update(lane.known_answers())
        except Exception as error:  # noqa: BLE001  a failed answer is a difference, and is named
            answers[f"merge of {lane.name}"] = _failed(error)
    return answers


def _failed(error: Exception) -> str:
    return f"{FAILED}{type(error).__name__}: {error}"


def _check_expected_values(answers: dict[str, str], lanes: Sequence[str]) -> None:
    """Compare with independently known values, so that machines with the same error do not pass."""
    expected = {
        "crc32c": f"{CRC32C_OF_DIGITS:08x}",
        "series index": "round trip",
    }
    for lane in spark_lanes(lanes).values():
        expected |= lane.expected
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
