"""Files come into a table: what is read of them, where they stand, what is refused and why."""

from __future__ import annotations

import io
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.storage import ObjectStore
from tests.webadmin.lanes.tables.conftest import CONTEXT
from tests.webadmin.lanes.tables.parquet_files import DAY_MS, HOUR_MS, day, put_hours, put_rows, put_table, rows_at
from webadmin.base.access.models import AuditEntry
from webadmin.lanes.tables.errors import IntervalRefused, RegistrationRefused, TableExists, TableRefused
from webadmin.lanes.tables.models import BadFile, Chunk, DataSource, Registration, Segment
from webadmin.lanes.tables.services.overrides import release_files
from webadmin.lanes.tables.services.read_files import OfferedFile
from webadmin.lanes.tables.services.register_files import drop_interval
from webadmin.lanes.tables.services.sources import NewTable, alter_table, create_table
from webadmin.lanes.tables.services.take_files import Taken, take_files
from webadmin.lanes.tables.states import RegistrationMode, SegmentState

APPEND, REPLACE = RegistrationMode.APPEND, RegistrationMode.REPLACE


def take(table: DataSource, store: ObjectStore, *paths: str, mode: RegistrationMode = APPEND, **told: object) -> Taken:
    table = DataSource.objects.select_related("policy").get(id=table.id)
    offered = [OfferedFile(path=path) for path in paths]
    return take_files(table, store, offered, mode=mode, context=CONTEXT, **told)  # type: ignore[arg-type]


def statuses(taken: Taken) -> list[str]:
    return [answer.code or answer.status for answer in taken.answers]


def places(table: DataSource, state: SegmentState = SegmentState.VISIBLE) -> list[tuple[str, int, int, int]]:
    rows = Segment.objects.filter(source=table, state=state).order_by("start_ms", "partition")
    return [
        (row.path, (row.start_ms - day(0)) // DAY_MS, (row.end_ms - day(0)) // DAY_MS, row.partition) for row in rows
    ]


def dirty(table: DataSource) -> list[int]:
    rows = Chunk.objects.filter(source=table, is_dirty=True).order_by("start_ms")
    return [(row.start_ms - day(0)) // DAY_MS for row in rows]


def test_files_are_in_the_chunk_of_their_rows_and_mark_the_table_dirty(table: DataSource, store: ObjectStore) -> None:
    paths = put_hours(store, 0, hours=[0, 1]) + put_hours(store, 3, hours=[5])
    taken = take(table, store, *paths)
    assert statuses(taken) == ["registered"] * 3
    assert places(table) == [(paths[0], 0, 1, 0), (paths[1], 0, 1, 1), (paths[2], 3, 4, 0)]
    assert dirty(table) == [0, 3]
    table.refresh_from_db()
    assert (table.sequence, table.is_dirty) == (1, True)
    assert [name for name, _ in table.columns] == ["ts", "id", "host", "value"]
    [registration] = Registration.objects.all()
    assert (registration.file_count, registration.row_count, registration.sequence) == (3, 9, 1)
    assert AuditEntry.objects.filter(action="append_files", actor="test").count() == 1


def test_the_same_files_again_change_nothing(table: DataSource, store: ObjectStore) -> None:
    paths = put_hours(store, 0, hours=[0, 1])
    take(table, store, *paths)
    before = list(Segment.objects.values())
    Chunk.objects.update(is_dirty=False)
    assert statuses(take(table, store, *paths)) == ["known", "known"]
    assert list(Segment.objects.values()) == before
    assert dirty(table) == []
    table.refresh_from_db()
    assert table.sequence == 1


def test_another_file_under_a_known_path_is_refused(table: DataSource, store: ObjectStore) -> None:
    [path] = put_hours(store, 0, hours=[0])
    take(table, store, path)
    size = store.head(path).size
    fresh = DataSource.objects.select_related("policy").get(id=table.id)
    told = take_files(fresh, store, [OfferedFile(path=path, size_bytes=size + 1)], mode=APPEND, context=CONTEXT)
    assert statuses(told) == ["file_differs"]


def test_a_late_file_takes_the_version_that_is_there(table: DataSource, store: ObjectStore) -> None:
    take(table, store, *put_hours(store, 0, hours=[0]))
    take(table, store, *put_hours(store, 0, hours=[1]))
    assert [place[1:] for place in places(table)] == [(0, 1, 0), (0, 1, 1)]
    assert len(set(Segment.objects.values_list("version", flat=True))) == 1


def test_a_file_over_midnight_joins_the_entries_it_touches(table: DataSource, store: ObjectStore) -> None:
    take(table, store, *put_hours(store, 0, hours=[0]), *put_hours(store, 1, hours=[0]))
    put_rows(store, "late.parquet", [day(1) - 1, day(1)])
    taken = take(table, store, "late.parquet")
    assert taken.registered is not None
    assert taken.registered.restamped == 2
    assert [place[1:] for place in places(table)] == [(0, 2, 0), (0, 2, 1), (0, 2, 2)]
    assert set(Segment.objects.values_list("is_spanning", flat=True)) == {True}


def test_an_interval_is_replaced_as_a_whole(table: DataSource, store: ObjectStore) -> None:
    old = put_hours(store, 0, hours=[0, 1]) + put_hours(store, 1, hours=[0])
    take(table, store, *old)
    put_rows(store, "new.parquet", [day(0.5)])
    told = take(table, store, "new.parquet", mode=REPLACE, interval=(day(0), day(1)))
    assert told.registered is not None
    assert told.registered.hidden == 2
    assert [place[0] for place in places(table)] == ["new.parquet", old[2]]
    hidden = Segment.objects.filter(state=SegmentState.REPLACED)
    assert set(hidden.values_list("replaced_in", flat=True)) == {2}


def test_nothing_is_replaced_unless_every_file_can_be_read(table: DataSource, store: ObjectStore) -> None:
    take(table, store, *put_hours(store, 0, hours=[0]))
    put_rows(store, "new.parquet", [day(0.5)])
    store.put("bad.parquet", b"no Parquet at all")
    told = take(table, store, "new.parquet", "bad.parquet", mode=REPLACE, interval=(day(0), day(1)))
    assert statuses(told) == ["left", "unknown_format"]
    assert told.registered is None
    assert len(places(table)) == 1


@pytest.mark.parametrize(("start", "end"), [(1.0, 0.0), (0.5, 1.0), (0.0, 1.5), (1.0, 2.0)])
def test_an_impossible_interval_changes_nothing(
    table: DataSource, store: ObjectStore, start: float, end: float
) -> None:
    put_rows(store, "two-days.parquet", [day(0.5), day(1.5)])
    take(table, store, "two-days.parquet")
    put_rows(store, "new.parquet", [day(1.5)])
    before = list(Segment.objects.values())
    with pytest.raises(IntervalRefused):
        take(table, store, "new.parquet", mode=REPLACE, interval=(day(start), day(end)))
    with pytest.raises(IntervalRefused):
        drop_interval(table, (day(start), day(end)), context=CONTEXT)
    assert list(Segment.objects.values()) == before


def test_a_dropped_interval_has_no_rows_until_a_late_file_comes(table: DataSource, store: ObjectStore) -> None:
    take(table, store, *put_hours(store, 0, hours=[0, 1]))
    assert drop_interval(table, (day(0), day(1)), context=CONTEXT).hidden == 2
    assert Segment.objects.filter(state=SegmentState.VISIBLE, is_tombstone=True).count() == 1
    assert drop_interval(table, (day(5), day(6)), context=CONTEXT).hidden == 0, "there is nothing to drop"
    take(table, store, *put_hours(store, 0, hours=[2]))
    data = Segment.objects.get(state=SegmentState.VISIBLE, is_tombstone=False)
    assert data.version > Segment.objects.get(is_tombstone=True).version


def test_columns_may_come_and_widen_but_not_contradict(table: DataSource, store: ObjectStore) -> None:
    base = rows_at([day(0)])
    put_table(store, "base.parquet", base)
    put_table(store, "more.parquet", base.append_column("extra", pa.array([1], pa.int32())))
    put_table(store, "text.parquet", base.set_column(1, "id", pa.array(["seven"])))
    assert statuses(take(table, store, "base.parquet", "more.parquet", "text.parquet")) == [
        "registered",
        "registered",
        "schema_conflict",
    ]
    told = take(table, store, "text.parquet").answers[0]
    assert "id (int64 in the table, string in text.parquet)" in told.message
    put_table(store, "wide.parquet", base.append_column("extra", pa.array([1 << 40], pa.int64())))
    take(table, store, "wide.parquet")
    table.refresh_from_db()
    assert dict(table.columns)["extra"] == "int64"


def lying_footer(table: pa.Table) -> bytes:
    """Return a file whose footer says one row more than its row groups have."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    data = bytearray(buffer.getvalue())
    length = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - length : -8]
    rows = footer.index(bytes([0x16, 2 * table.num_rows]))  # thrift: field of type i64, zigzag
    data[len(data) - 8 - length + rows + 1] = 2 * (table.num_rows + 1)
    return bytes(data)


@pytest.mark.parametrize(
    ("path", "content", "code"),
    [
        ("_lithify/current.json", b"", "path_refused"),
        ("a/../b.parquet", b"", "path_refused"),
        ("missing.parquet", None, "object_not_found"),
        ("text.parquet", b"just a text that is long enough", "unknown_format"),
        ("short.parquet", b"PAR1", "truncated_object"),
        ("cut.parquet", "cut", "unknown_format"),
        ("lies.parquet", "lies", "bad_object"),
        ("no-rows.parquet", "no rows", "file_empty"),
        ("no-time.parquet", "no time column", "unknown_format"),
        ("far.parquet", "far", "times_refused"),
    ],
)
def test_what_cannot_be_in_a_table_is_refused_with_file_and_reason(
    table: DataSource, store: ObjectStore, path: str, content: bytes | str | None, code: str
) -> None:
    rows = rows_at([day(0) + minute for minute in range(5)])
    if isinstance(content, bytes):
        if content:
            store.put(path, content)
    elif content == "cut":
        buffer = io.BytesIO()
        pq.write_table(rows, buffer)
        store.put(path, buffer.getvalue()[:-20])
    elif content == "lies":
        store.put(path, lying_footer(rows))
    elif content == "no rows":
        put_table(store, path, rows.slice(0, 0))
    elif content == "no time column":
        put_table(store, path, rows.drop_columns(["ts"]))
    elif content == "far":
        put_rows(store, path, [0, day(0)])
    good = put_hours(store, 0, hours=[0])
    told = take(table, store, path, *good)
    assert statuses(told) == [code, "registered"]
    assert told.answers[0].path == path
    assert told.answers[0].message


def test_a_damaged_file_is_kept_apart_and_comes_in_once_it_is_repaired(table: DataSource, store: ObjectStore) -> None:
    store.put("bad.parquet", b"no Parquet at all")
    take(table, store, "bad.parquet", keeps_bad=True)
    take(table, store, "bad.parquet", keeps_bad=True)
    [held] = BadFile.objects.all()
    assert (held.path, held.place, held.error_class) == ("bad.parquet", "footer", "UnknownFormat")
    put_rows(store, "bad.parquet", [day(0)])
    assert release_files(table, store, ["bad.parquet"], context=CONTEXT) == ["bad.parquet"]
    assert statuses(take(table, store, "bad.parquet")) == ["registered"]


def test_a_released_segment_comes_back_like_a_late_file(table: DataSource, store: ObjectStore) -> None:
    [path] = put_hours(store, 0, hours=[0])
    take(table, store, path, *put_hours(store, 0, hours=[1]))
    segment = Segment.objects.get(path=path)
    Segment.objects.filter(id=segment.id).update(state=SegmentState.QUARANTINED)
    BadFile.objects.create(source=table, path=path, segment=segment, error_class="BadObject", at_ms=1)
    take(table, store, *put_hours(store, 0, hours=[2]))
    release_files(table, store, [path], context=CONTEXT)
    segment = Segment.objects.get(path=path, state=SegmentState.VISIBLE)
    assert segment.partition == 3
    table.refresh_from_db()
    assert (table.sequence, table.is_dirty) == (3, True)


def test_a_dry_run_reports_statuses_and_registers_nothing(table: DataSource, store: ObjectStore) -> None:
    paths = put_hours(store, 0, hours=[0])
    fresh = DataSource.objects.select_related("policy").get(id=table.id)
    told = take_files(
        fresh, store, [OfferedFile(path=paths[0])], mode=APPEND, context=replace(CONTEXT, is_dry_run=True)
    )
    assert statuses(told) == ["registered"]
    assert not Segment.objects.exists()
    assert not Registration.objects.exists()


def test_an_interval_belongs_to_replacing_alone(table: DataSource, store: ObjectStore) -> None:
    [path] = put_hours(store, 0, hours=[0])
    with pytest.raises(RegistrationRefused, match="interval"):
        take(table, store, path, interval=(day(0), day(1)))
    with pytest.raises(RegistrationRefused, match="interval"):
        take(table, store, path, mode=REPLACE)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"granularity": "fortnight"}, "unknown granularity"),
        ({"granularity": "all"}, "a table has chunks"),
        ({"time_zone": "Europe/Atlantis"}, "unknown time zone"),
        ({"small_cost": 10, "task_cost_max": 15}, "small_cost"),
        ({"weight_recency": 16}, "percent"),
        ({"waiting_max": 5, "low_water": 5}, "low_water"),
        ({"segment_bytes_max": 0}, "segment_bytes_max"),
        ({"sort_columns": ["a", "a"]}, "stands twice"),
        ({"roll_up": {"dimensions": ["a"], "metrics": [{"name": "a", "function": "count"}]}}, "one name"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_a_policy_that_cannot_be_is_refused_with_the_reason(
    table: DataSource, settings: dict[str, object], why: str
) -> None:
    with pytest.raises(TableRefused, match=why):
        alter_table(table, settings, context=CONTEXT)


def test_other_chunks_are_looked_at_from_the_beginning(table: DataSource, store: ObjectStore) -> None:
    take(table, store, *put_hours(store, 0, hours=[0, 1, 23]))
    Chunk.objects.update(is_dirty=False)
    changed = alter_table(table, {"granularity": "hour"}, context=CONTEXT)
    assert changed == {"granularity": "hour"}
    assert Chunk.objects.filter(source=table, is_dirty=True).count() == 24, "the hours of the entry's day"
    assert Segment.objects.filter(is_spanning=True).count() == 3
    assert alter_table(table, {"granularity": "hour"}, context=CONTEXT) == {}


def test_a_place_belongs_to_one_table(new_table: NewTable, table: DataSource) -> None:
    assert create_table(new_table, context=CONTEXT).id == table.id
    with pytest.raises(TableExists):
        create_table(replace(new_table, time_column="other"), context=CONTEXT)
    for url in (table.url, f"{table.url}/part", table.url.rpartition("/")[0]):
        with pytest.raises(TableExists):
            create_table(replace(new_table, tenant="beta", name="other", url=url), context=CONTEXT)
    assert create_table(replace(new_table, name="other", url=f"{table.url}-2"), context=CONTEXT).name == "other"


@pytest.mark.parametrize("name", ["", "a/b", ".hidden", "x" * 61, "sp ace"])
def test_a_table_has_a_name_that_addresses_can_hold(new_table: NewTable, table: DataSource, name: str) -> None:
    with pytest.raises(TableRefused):
        create_table(replace(new_table, name=name), context=CONTEXT)


def test_times_of_whole_numbers_have_a_unit(new_table: NewTable, table: DataSource, store: ObjectStore) -> None:
    numbers = pa.table({"at": pa.array([day(0) // 1000, day(0) // 1000 + 3600])})
    other = create_table(
        replace(new_table, name="seconds", url=f"{store.url}-s", time_column="at", time_unit="s"), context=CONTEXT
    )
    put_table(store, "numbers.parquet", numbers)
    assert statuses(take(other, store, "numbers.parquet")) == ["registered"]
    segment = Segment.objects.get(source=other)
    assert (segment.first_ms, segment.last_ms) == (day(0), day(0) + HOUR_MS)
