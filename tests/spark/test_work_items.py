"""Units are gathered into work_items of even weight, and work_items and errors come through as they were."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import BadObject, ChecksumMismatch, MergeRefused
from engine.lanes.profiles.jobs import ProfileMergeSpec, SourceObject
from engine.storage import ObjectNotFound, StorageError
from spark.errors import UnitFailed
from spark.lanes.profiles.work_items import WORK_ITEM_BYTES, Unit, WorkItem, make_work_items
from spark.remote_errors import error_from_bytes, error_to_bytes


def spec(job: str) -> ProfileMergeSpec:
    source = SourceObject(id="id", key="key", size=5, metadata=b"\xff\x00")
    return ProfileMergeSpec(job=job, tenant="", shard=1, level=0, sources=(source,), fence=7)


def work_items_of(sizes: dict[str, list[int]], parallelism: int) -> tuple[list[Unit], list[WorkItem]]:
    units = [
        Unit(job=job, output=0, dataset=number, size=size)
        for job, job_sizes in sizes.items()
        for number, size in enumerate(job_sizes)
    ]
    specs = [spec(job) for job in sizes]
    return units, make_work_items(specs, units, store_url="s3://b", inline_bytes=9, parallelism=parallelism)


jobs_of_any_size = st.dictionaries(
    st.text("abc", min_size=1, max_size=2),
    st.lists(st.one_of(st.integers(0, 100), st.integers(0, 3 * WORK_ITEM_BYTES)), min_size=1, max_size=12),
    min_size=1,
    max_size=6,
)


@given(sizes=jobs_of_any_size, parallelism=st.integers(1, 8))
def test_every_unit_is_in_one_order_with_its_specification(sizes: dict[str, list[int]], parallelism: int) -> None:
    units, work_items = work_items_of(sizes, parallelism)
    assert sorted(map(repr, (unit for work_item in work_items for unit in work_item.units))) == sorted(map(repr, units))
    for work_item in work_items:
        assert work_item.units
        assert {one.job for one in work_item.specs} == {unit.job for unit in work_item.units}
        assert WorkItem.from_bytes(work_item.to_bytes()) == work_item


@given(sizes=jobs_of_any_size, parallelism=st.integers(1, 8))
def test_orders_are_even_and_the_heaviest_comes_first(sizes: dict[str, list[int]], parallelism: int) -> None:
    units, work_items = work_items_of(sizes, parallelism)
    weights = [sum(unit.size + 1 for unit in work_item.units) for work_item in work_items]
    assert weights == sorted(weights, reverse=True)
    # Dealing the largest first is at most a third above what is possible at best.
    best = max(max(unit.size + 1 for unit in units), sum(weights) / len(work_items))
    assert weights[0] <= best * (4 / 3) + 1


def test_small_units_share_as_many_tasks_as_there_are_cores() -> None:
    assert [len(work_item.units) for work_item in work_items_of({"a": [10] * 32, "b": [10] * 32}, 2)[1]] == [32, 32]
    assert len(work_items_of({"a": [10]}, 8)[1]) == 1


def test_large_units_have_tasks_of_their_own() -> None:
    assert [len(work_item.units) for work_item in work_items_of({"a": [WORK_ITEM_BYTES] * 10}, 2)[1]] == [1] * 10


def test_the_engines_errors_come_back_as_what_they_were() -> None:
    for error in (
        ChecksumMismatch("symbols", 17, "crc32c differs", "segments/1/x"),
        ObjectNotFound("get", "a/b", "no object has this key"),
        StorageError("get_range", "a/b", "SlowDown"),
        MergeRefused("sources differ"),
    ):
        back = error_from_bytes(error_to_bytes(error))
        assert (type(back), back.args, str(back)) == (type(error), error.args, str(error))


def test_other_errors_are_passed_as_text_and_never_reconstructed() -> None:
    back = error_from_bytes(error_to_bytes(MemoryError("no room")))
    assert isinstance(back, UnitFailed)
    assert str(back) == "MemoryError: no room"
    forged = (
        error_to_bytes(BadObject("x", 1, "y")).replace(b"engine.core.errors", b"os").replace(b"BadObject", b"abort")
    )
    assert isinstance(error_from_bytes(forged), UnitFailed)
