"""Result rows of executors: one row per merged part of a unit, or one row with the error of the unit.

Small sections are in the row; larger ones are written by the executor as scratch objects
``scratch/<job>/<fence>/<unit>-<section>``, which the driver streams into the result block and deletes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from engine.formats.profile_block.merge_model import SECTION_NAMES, InlineSection, MergedDataset, SectionData
from engine.formats.profile_block.model import IndexedSeries
from engine.lanes.profiles.jobs import ProfileMergeSpec
from engine.storage import ObjectStore
from spark.errors import SparkJobFailed
from spark.lanes.profiles.work_items import Unit
from spark.remote_errors import error_from_bytes, error_to_bytes

RESULT_DDL = (
    "job string, output int, dataset int, part int, parts int, about binary, error binary, "
    "profiles binary, series_index binary, symbols binary"
)
SCHEMA = pa.schema(
    [
        ("job", pa.string()),
        ("output", pa.int32()),
        ("dataset", pa.int32()),
        ("part", pa.int32()),
        ("parts", pa.int32()),
        ("about", pa.binary()),
        ("error", pa.binary()),
        *((name, pa.binary()) for name in SECTION_NAMES),
    ]
)
COUNTS = ("row_count", "rows_read", "rows_dropped", "sample_count", "min_time_ns", "max_time_ns", "bytes_read")
CHUNK_BYTES = 8 << 20
"""Bytes per read of a scratch object."""


@dataclass(frozen=True, slots=True)
class ObjectSection:
    """A section in a scratch object; ``close`` deletes it. Implements ``SectionData``."""

    store: ObjectStore
    key: str
    size: int

    def chunks(self) -> Iterator[bytes]:
        """Yield the section's bytes in order."""
        for start in range(0, self.size, CHUNK_BYTES):
            yield self.store.get_range(self.key, start, min(CHUNK_BYTES, self.size - start))

    def close(self) -> None:
        """Delete the object; idempotent."""
        self.store.delete(self.key)


def scratch_prefix(spec: ProfileMergeSpec) -> str:
    """Return the key prefix of the scratch objects of one assignment of a job; no two assignments share one."""
    return f"scratch/{spec.job}/{'none' if spec.fence is None else spec.fence}/"


def merged_row(
    unit: Unit, part: int, parts: int, merged: MergedDataset, *, store: ObjectStore, prefix: str, inline_bytes: int
) -> pa.RecordBatch:
    """Return the row of part ``part`` of ``parts``; sections of more than ``inline_bytes`` in all go to the store."""
    keys = None
    if merged.size > inline_bytes:
        keys = [f"{prefix}{unit.output}-{unit.dataset}-{part}-{name}" for name in SECTION_NAMES]
        for key, section in zip(keys, merged.sections, strict=True):
            _write(store, key, section)
    inline = [None] * len(SECTION_NAMES) if keys else [b"".join(section.chunks()) for section in merged.sections]
    about = {
        "counts": [getattr(merged, name) for name in COUNTS],
        "series": [_series_to_json(series) for series in merged.series],
        "keys": keys,
        "sizes": [section.size for section in merged.sections],
    }
    return _row(unit, part, parts, json.dumps(about).encode(), None, inline)


def error_row(unit: Unit, error: Exception) -> pa.RecordBatch:
    """Return the row of a failed unit."""
    return _row(unit, 0, 0, None, error_to_bytes(error), [None] * len(SECTION_NAMES))


def empty_row(unit: Unit) -> pa.RecordBatch:
    """Return the row of a unit whose merged dataset is empty."""
    return _row(unit, 0, 0, None, None, [None] * len(SECTION_NAMES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """The results of one job: merged parts by (output, dataset), or the error of its first failing unit.

    ``part_counts`` is the expected number of parts of each (output, dataset).
    """

    parts: dict[tuple[int, int], list[MergedDataset]] = field(default_factory=dict)
    part_counts: dict[tuple[int, int], int] = field(default_factory=dict)
    error: Exception | None = None

    def close(self) -> None:
        """Delete the scratch objects."""
        for parts in self.parts.values():
            for merged in parts:
                merged.close()


def answers_by_job(table: pa.Table, store: ObjectStore) -> dict[str, Answers]:
    """Group the rows of all tasks by job; they arrive in any order, without duplicates."""
    rows = sorted(table.to_pylist(), key=lambda row: (row["output"], row["dataset"], row["part"]))
    jobs: dict[str, Answers] = {}
    for row in rows:
        known = jobs.setdefault(row["job"], Answers())
        if row["error"] is not None:
            if known.error is None:
                jobs[row["job"]] = replace(known, error=error_from_bytes(row["error"]))
            continue
        unit = (row["output"], row["dataset"])
        known.part_counts[unit] = row["parts"]
        parts = known.parts.setdefault(unit, [])
        if row["about"] is not None:
            parts.append(_merged(row, store))
    return jobs


def _merged(row: dict[str, Any], store: ObjectStore) -> MergedDataset:
    about = json.loads(row["about"])
    sections: Sequence[Any]
    if about["keys"]:
        sections = [ObjectSection(store, key, size) for key, size in zip(about["keys"], about["sizes"], strict=True)]
    else:
        sections = [InlineSection(row[name]) for name in SECTION_NAMES]
    return MergedDataset(
        sections=(sections[0], sections[1], sections[2]),
        series=tuple(_series_from_json(fields) for fields in about["series"]),
        **dict(zip(COUNTS, about["counts"], strict=True)),
    )


def _row(
    unit: Unit, part: int, parts: int, about: bytes | None, error: bytes | None, sections: Sequence[bytes | None]
) -> pa.RecordBatch:
    values = [unit.job, unit.output, unit.dataset, part, parts, about, error, *sections]
    return pa.record_batch(
        [pa.array([value], field.type) for value, field in zip(values, SCHEMA, strict=True)], schema=SCHEMA
    )


def _write(store: ObjectStore, key: str, section: SectionData) -> None:
    with store.open_writer(key) as writer:
        for chunk in section.chunks():
            writer.write(chunk)


def _series_to_json(series: IndexedSeries) -> list[Any]:
    # Latin-1 maps every byte to a character, so that labels that are not UTF-8 are preserved.
    labels = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in series.labels]
    return [series.fingerprint, labels, series.min_time_ns, series.max_time_ns, series.position]


def _series_from_json(fields: list[Any]) -> IndexedSeries:
    fingerprint, labels, min_time_ns, max_time_ns, position = fields
    encoded = tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in labels)
    return IndexedSeries(fingerprint, encoded, min_time_ns, max_time_ns, position)


def check_complete(answers: Answers, expected: Sequence[tuple[int, int]]) -> None:
    """Raise SparkJobFailed if a unit or part is missing: lost rows must not make a smaller block."""
    missing = [unit for unit in expected if len(answers.parts.get(unit, ())) != answers.part_counts.get(unit, -1)]
    if missing:
        raise SparkJobFailed(f"no result was returned for dataset {missing[0][1]} of output {missing[0][0]}")
