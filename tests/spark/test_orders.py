"""Units are gathered into orders of even weight, and orders and errors come through as they were."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import BadObject, ChecksumMismatch, MergeRefused
from engine.lanes.profiles.jobs import ProfileMergeSpec, SourceObject
from engine.storage import ObjectNotFound, StorageError
from spark.errors import UnitFailed
from spark.orders import ORDER_BYTES, Order, Unit, gather
from spark.remote_errors import error_from_bytes, error_to_bytes


def spec(job: str) -> ProfileMergeSpec:
    source = SourceObject(id="id", key="key", size=5, metadata=b"\xff\x00")
    return ProfileMergeSpec(job=job, tenant="", shard=1, level=0, sources=(source,), fence=7)


def orders_of(sizes: dict[str, list[int]], parallelism: int) -> tuple[list[Unit], list[Order]]:
    units = [
        Unit(job=job, output=0, dataset=number, size=size)
        for job, job_sizes in sizes.items()
        for number, size in enumerate(job_sizes)
    ]
    specs = [spec(job) for job in sizes]
    return units, gather(specs, units, store_url="s3://b", inline_bytes=9, parallelism=parallelism)


jobs_of_any_size = st.dictionaries(
    st.text("abc", min_size=1, max_size=2),
    st.lists(st.one_of(st.integers(0, 100), st.integers(0, 3 * ORDER_BYTES)), min_size=1, max_size=12),
    min_size=1,
    max_size=6,
)


@given(sizes=jobs_of_any_size, parallelism=st.integers(1, 8))
def test_every_unit_is_in_one_order_with_its_specification(sizes: dict[str, list[int]], parallelism: int) -> None:
    units, orders = orders_of(sizes, parallelism)
    assert sorted(map(repr, (unit for order in orders for unit in order.units))) == sorted(map(repr, units))
    for order in orders:
        assert order.units
        assert {one.job for one in order.specs} == {unit.job for unit in order.units}
        assert Order.from_bytes(order.to_bytes()) == order


@given(sizes=jobs_of_any_size, parallelism=st.integers(1, 8))
def test_orders_are_even_and_the_heaviest_comes_first(sizes: dict[str, list[int]], parallelism: int) -> None:
    units, orders = orders_of(sizes, parallelism)
    weights = [sum(unit.size + 1 for unit in order.units) for order in orders]
    assert weights == sorted(weights, reverse=True)
    # Dealing the largest first is at most a third above what is possible at best.
    best = max(max(unit.size + 1 for unit in units), sum(weights) / len(orders))
    assert weights[0] <= best * (4 / 3) + 1


def test_small_units_share_as_many_tasks_as_there_are_cores() -> None:
    assert [len(order.units) for order in orders_of({"a": [10] * 32, "b": [10] * 32}, 2)[1]] == [32, 32]
    assert len(orders_of({"a": [10]}, 8)[1]) == 1


def test_large_units_have_tasks_of_their_own() -> None:
    assert [len(order.units) for order in orders_of({"a": [ORDER_BYTES] * 10}, 2)[1]] == [1] * 10


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
