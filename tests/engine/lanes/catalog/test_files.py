"""Files of the catalog: what is read, how much, and what damage does to whom."""

from __future__ import annotations

import json

import pytest

from engine.core.errors import BadObject, ChecksumMismatch, Truncated, UnknownFormat
from engine.formats.ranges.errors import InvalidEntryKey, InvalidRecord, UnsortedKeys
from engine.formats.ranges.layout import Kind
from engine.formats.ranges.metarange import Metarange
from engine.formats.ranges.model import StagedRecord, check_key, check_record, key_of, prefix_end
from engine.formats.ranges.object_entry import ObjectEntry
from engine.lanes.catalog.files import CatalogFiles
from engine.lanes.catalog.state_reader import StateReader
from engine.storage import ObjectNotFound
from tests.engine.formats.profile_block.damage import flips, truncations
from tests.engine.lanes.catalog.factories import entries_of, new_files, ranges_of, state, values_of
from tests.golden import catalog
from tests.memory_store import MemoryStore

KEYS = [b"folder-%d/%05d" % (number % 7, number) for number in range(3_000)]


@pytest.fixture(scope="module")
def files() -> CatalogFiles:
    return new_files()


@pytest.fixture(scope="module")
def metarange(files: CatalogFiles) -> Metarange:
    """Seven ranges of several blocks each."""
    folders = [sorted(key for key in KEYS if key.startswith(b"folder-%d" % number)) for number in range(7)]
    return ranges_of(files, folders, value="v" * 60)


def objects(files: CatalogFiles) -> dict[str, bytes]:
    assert isinstance(files.store, MemoryStore)
    return files.store.objects


def test_the_golden_files_are_made_and_read_again() -> None:
    made = catalog.make()
    assert {name: data for name, data in made.items() if (catalog.FOLDER / name).read_bytes() != data} == {}
    told = json.loads((catalog.FOLDER / "catalog.json").read_bytes())
    files = new_files()
    for kind, name in ((Kind.METARANGE, "catalog-metarange.bin"), (Kind.RANGE, "catalog-range.bin")):
        objects(files)[files.key(kind, told[name])] = made[name]
    metarange = files.read_metarange(told["catalog-metarange.bin"])
    assert [info.id for info in metarange.ranges] == [told["catalog-range.bin"]]
    assert [entry.key.decode() for entry in entries_of(files, metarange)] == told["keys"]
    assert ObjectEntry.from_payload(entries_of(files, metarange)[0].payload) == catalog.OBJECT


def test_a_point_read_takes_one_index_and_one_block(files: CatalogFiles, metarange: Metarange) -> None:
    reader = StateReader(files, metarange)
    before = files.store.usage.requests().get("get_range", 0)
    assert reader.get(KEYS[1234]) is not None
    assert files.store.usage.requests()["get_range"] - before == 2
    assert reader.get(KEYS[1234 + 7]) is not None
    assert files.store.usage.requests()["get_range"] - before == 3
    for absent in (b"", b"a", b"folder-3", b"folder-3/0", b"folder-9"):
        assert reader.get(absent) is None
    assert {key: reader.get(key) is not None for key in KEYS} == dict.fromkeys(KEYS, True)


def test_a_cursor_seeks_forward_from_anywhere(files: CatalogFiles, metarange: Metarange) -> None:
    ordered = sorted(KEYS)
    reader = StateReader(files, metarange)
    assert [entry.key for entry in reader.scan()] == ordered
    assert [entry.key for entry in reader.scan(b"folder-2/", b"folder-3/00020")] == [
        key for key in ordered if b"folder-2/" <= key < b"folder-3/00020"
    ]
    cursor = reader.cursor(b"folder-1/")
    for target in (b"folder-1/00200", b"folder-1/00100", b"folder-1/01", b"folder-4", b"folder-6/02900", b"g"):
        standing = cursor.row
        cursor.seek(target)
        assert standing is not None
        expected = next((key for key in ordered if key >= max(target, standing[0])), None)
        assert (cursor.row[0] if cursor.row else None) == expected


def test_a_long_scan_reads_ahead_in_growing_steps(files: CatalogFiles, metarange: Metarange) -> None:
    before = files.store.usage.requests().get("get_range", 0)
    assert sum(1 for _ in StateReader(files, metarange).scan()) == len(KEYS)
    # An index for each range, one block of the first, then two and more at once.
    assert files.store.usage.requests()["get_range"] - before == 2 * len(metarange.ranges) + 1


def test_a_damaged_range_fails_only_its_own_reads_and_is_named() -> None:
    files = new_files()
    metarange = ranges_of(files, [[b"a1", b"a2"], [b"b1", b"b2"], [b"c1"]])
    key = files.key(Kind.RANGE, metarange.ranges[1].id)
    whole = objects(files)[key]
    for _, damaged in flips(whole, 7):
        objects(files)[key] = damaged
        with pytest.raises(BadObject) as error:
            files.verify(metarange.ranges[1])
        assert error.value.object_name == key
    objects(files)[key] = whole[:10] + b"!" + whole[11:]
    reader = StateReader(files, metarange)
    assert reader.get(b"a2") is not None
    assert reader.get(b"c1") is not None
    assert [entry.key for entry in reader.scan(b"c")] == [b"c1"]
    assert reader.get(b"b") is None
    for read in (lambda: reader.get(b"b1"), lambda: list(reader.scan()), lambda: values_of(files, metarange)):
        with pytest.raises(ChecksumMismatch) as damage:
            read()
        assert damage.value.object_name == key
        assert metarange.ranges[1].id in str(damage.value)


@pytest.mark.parametrize("read", [lambda files, info: files.read_index(info), lambda files, info: files.verify(info)])
def test_files_that_end_early_are_refused(read: object) -> None:
    files = new_files()
    info = state(files, dict.fromkeys(KEYS[:9], "v")).ranges[0]
    key = files.key(Kind.RANGE, info.id)
    for damaged in truncations(objects(files)[key]):
        objects(files)[key] = damaged
        with pytest.raises(BadObject):
            read(files, info)  # type: ignore[operator]
        with pytest.raises(Truncated):
            list(files.whole_blocks(info))


def test_a_missing_range_is_named() -> None:
    files = new_files()
    metarange = state(files, {b"a": "v"})
    del objects(files)[files.key(Kind.RANGE, metarange.ranges[0].id)]
    with pytest.raises(ObjectNotFound, match=metarange.ranges[0].id):
        StateReader(files, metarange).get(b"a")


def test_a_metarange_is_checked_against_its_name_and_kind() -> None:
    files = new_files()
    metarange = state(files, dict.fromkeys(KEYS[:50], "v"))
    assert files.read_metarange(metarange.id) == metarange
    key = files.key(Kind.METARANGE, metarange.id)
    whole = objects(files)[key]
    for _, damaged in flips(whole, 11):
        objects(files)[key] = damaged
        with pytest.raises(BadObject, match=metarange.id):
            files.read_metarange(metarange.id)
    range_key = files.key(Kind.RANGE, metarange.ranges[0].id)
    objects(files)[range_key], info = whole, metarange.ranges[0]
    with pytest.raises((UnknownFormat, Truncated)):
        list(files.whole_blocks(info))


@pytest.mark.row("B87")
def test_overlapping_ranges_are_refused() -> None:
    files = new_files()
    one, two = ranges_of(files, [[b"a", b"c"]]).ranges[0], ranges_of(files, [[b"b", b"d"]]).ranges[0]
    for ranges in ([one, two], [two, one], [one, one]):
        with pytest.raises(UnsortedKeys):
            files.write_metarange(ranges)


def test_the_empty_state_has_a_metarange() -> None:
    files = new_files()
    empty, _ = files.write_metarange([])
    assert files.read_metarange(empty.id) == empty
    assert StateReader(files, empty).get(b"a") is None
    assert StateReader(files, empty).cursor().row is None


@pytest.mark.parametrize(
    "text", ["..", "../../etc/passwd", "/", "a//b", " ", "\n\t\x01\x7f", "ключ/鍵/🔑", "a" * 1024, "%00", "\u202e"]
)
def test_hostile_keys_are_kept_as_they_are(text: str) -> None:
    files = new_files()
    metarange = state(files, {key_of(text): "v"})
    assert [entry.key.decode() for entry in entries_of(files, metarange)] == [text]


@pytest.mark.parametrize(
    ("text", "reason"),
    [("", "empty"), ("a" * 1025, "1025 bytes"), ("é" * 513, "1026 bytes"), ("a\0", "NUL at byte 1"), ("a\ud800", "1")],
)
def test_keys_that_cannot_be_are_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidEntryKey, match=reason):
        key_of(text)


def test_records_that_cannot_be_are_refused() -> None:
    with pytest.raises(InvalidEntryKey, match="not UTF-8 at byte 1"):
        check_key(b"a\xff")
    for record in (
        StagedRecord(b"a", 1, b"", b"payload"),
        StagedRecord(b"a", 1, b"i" * 65),
        StagedRecord(b"a", 1, b"i", b"p" * ((1 << 20) + 1)),
        StagedRecord(b"a", -1, b"i"),
    ):
        with pytest.raises(InvalidRecord):
            check_record(record)


@pytest.mark.row("B67")
def test_an_empty_value_is_a_value() -> None:
    assert not check_record(StagedRecord(b"a", 1, b"i", b"")).is_tombstone
    assert check_record(StagedRecord(b"a", 1, b"")).is_tombstone


@pytest.mark.row("B65")
def test_the_end_of_a_prefix_is_the_next_key_without_it() -> None:
    ends = [(b"a", b"b"), (b"a\xff", b"b"), (b"\xff\xff", None), (b"", None), (b"a\xff\xfe", b"a\xff\xff")]
    assert [prefix_end(prefix) for prefix, _ in ends] == [end for _, end in ends]


def test_an_object_is_the_same_wherever_and_whenever_it_was_written() -> None:
    one = ObjectEntry(address="x/1", size=3, checksum="c", written_at=1.0, content_type="t", metadata={"a": "1"})
    moved = ObjectEntry(address="x/2", size=3, checksum="c", written_at=2.0, content_type="t", metadata={"a": "1"})
    other = ObjectEntry(address="x/1", size=3, checksum="c", written_at=1.0, content_type="t", metadata={"a": "2"})
    assert one.identity == moved.identity != other.identity
    assert ObjectEntry.from_payload(one.to_payload()) == one
    for payload in (b"", b"[]", b"{}", b"\xff"):
        with pytest.raises(InvalidRecord):
            ObjectEntry.from_payload(payload)
