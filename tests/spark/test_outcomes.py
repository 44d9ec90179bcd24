"""Merged datasets come through Spark's rows as they were, inline or as scratch objects."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from engine.core.errors import BadObject
from engine.formats.profile_block.merge_model import InlineSection, MergedDataset
from engine.formats.profile_block.model import IndexedSeries
from engine.storage import ObjectStore, open_store
from spark.errors import SparkJobFailed
from spark.lanes.profiles.outcomes import answers_by_job, check_complete, empty_row, error_row, merged_row
from spark.lanes.profiles.work_items import Unit

UNIT = Unit(job="job", output=1, dataset=2, size=0)
SECTIONS = (b"profiles", b"series index", b"symbols" * 1000)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(str(tmp_path))


def merged(row_count: int) -> MergedDataset:
    labels = ((b"__name__", b"cpu"), (b"odd", b"\xff\xfe\x00"))
    return MergedDataset(
        sections=tuple(InlineSection(data) for data in SECTIONS),  # type: ignore[arg-type]
        series=(IndexedSeries(2**64 - 1, labels, -5, 2**62, 3),),
        row_count=row_count,
        rows_read=11,
        rows_dropped=1,
        sample_count=99,
        min_time_ns=-5,
        max_time_ns=2**62,
        bytes_read=2**40,
    )


def content(dataset: MergedDataset) -> tuple[object, ...]:
    sections = [b"".join(section.chunks()) for section in dataset.sections]
    return (sections, dataset.series, dataset.row_count, dataset.rows_read, dataset.min_time_ns, dataset.bytes_read)


@pytest.mark.parametrize(("inline_bytes", "objects"), [(1 << 20, 0), (0, 6)])
def test_parts_come_back_in_order_and_equal(store: ObjectStore, inline_bytes: int, objects: int) -> None:
    rows = [
        merged_row(UNIT, part, 2, merged(part), store=store, prefix="scratch/job/1/", inline_bytes=inline_bytes)
        for part in (1, 0)
    ]
    answers = answers_by_job(pa.Table.from_batches(rows), store)["job"]
    assert len(list(store.list("scratch/job/1/"))) == objects
    assert [content(part) for part in answers.parts[1, 2]] == [content(merged(0)), content(merged(1))]
    check_complete(answers, [(1, 2)])
    answers.close()
    answers.close()
    assert list(store.list()) == []


def test_a_dataset_that_came_to_nothing_is_an_answer(store: ObjectStore) -> None:
    answers = answers_by_job(pa.Table.from_batches([empty_row(UNIT)]), store)["job"]
    check_complete(answers, [(1, 2)])
    assert answers.parts == {(1, 2): []}


def test_a_lost_row_is_noticed(store: ObjectStore) -> None:
    rows = [merged_row(UNIT, 1, 2, merged(1), store=store, prefix="scratch/", inline_bytes=1 << 20)]
    answers = answers_by_job(pa.Table.from_batches(rows), store)["job"]
    with pytest.raises(SparkJobFailed, match="no result was returned for dataset 2 of output 1"):
        check_complete(answers, [(1, 2)])
    with pytest.raises(SparkJobFailed, match="no result was returned for dataset 0 of output 0"):
        check_complete(answers, [(0, 0)])


def test_the_error_of_the_first_failing_unit_is_the_jobs(store: ObjectStore) -> None:
    rows = [
        error_row(Unit(job="job", output=3, dataset=0, size=0), BadObject("symbols", 1, "later")),
        error_row(Unit(job="job", output=1, dataset=9, size=0), BadObject("symbols", 1, "first")),
        empty_row(UNIT),
    ]
    error = answers_by_job(pa.Table.from_batches(rows), store)["job"].error
    assert isinstance(error, BadObject)
    assert error.reason == "first"
