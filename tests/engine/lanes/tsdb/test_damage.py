"""Whatever is done to the bytes of a block: an error that names file and place, or the same answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.core.errors import BadObject, BadReference, ChecksumMismatch, LimitExceeded, Truncated, UnknownFormat
from engine.formats.prometheus.block_reader import BlockReader
from engine.formats.prometheus.errors import Inconsistent, OutOfOrder
from engine.lanes.tsdb.merge.verification import BlockCounts, verify_block
from tests.engine.formats.profile_block.damage import flips, patched, truncations
from tests.engine.lanes.tsdb import factories
from tests.engine.lanes.tsdb.factories import block_files, index_bytes, series_body, write_block

COUNTS = BlockCounts(
    series=2, chunks=3, samples=9, float_samples=9, histogram_samples=0, postings_lists=4, tombstones=1
)
FILES = ("index", "chunks/000001", "tombstones", "meta.json")
# What nothing refers to: between the records of the chunk file, and in front of the first label index.
UNUSED = {"index": {63}, "chunks/000001": {*range(28, 40), *range(58, 60)}, "tombstones": set()}


def verified(root: Path, **changes: bytes) -> BlockCounts:
    return verify_block(write_block(root, block_files() | changes))


def refusal(root: Path, changes: dict[str, bytes]) -> BadObject:
    with pytest.raises(BadObject) as refused:
        verified(root, **changes)
    assert refused.value.object_name == factories.ULID
    return refused.value


def test_the_block_made_by_hand_is_sound(tmp_path: Path) -> None:
    assert verified(tmp_path) == COUNTS


def test_an_index_without_label_indices_and_a_block_without_tombstones_are_sound(tmp_path: Path) -> None:
    stats = {"numSamples": 9, "numSeries": 2, "numChunks": 3}
    meta = json.dumps(factories.meta_document(stats=stats)).encode()
    files = {"index": index_bytes(label_indices=()), "meta.json": meta}
    folder = write_block(tmp_path, block_files() | files)
    (folder / "tombstones").unlink()
    assert verify_block(folder).postings_lists == 4


def outcome(root: Path, **changes: bytes) -> BlockCounts | BadObject:
    try:
        return verified(root, **changes)
    except BadObject as error:
        return error


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES[:3])
def test_a_changed_byte_is_found_unless_nothing_refers_to_it(tmp_path: Path, name: str) -> None:
    outcomes = {offset: outcome(tmp_path, **{name: damaged}) for offset, damaged in flips(block_files()[name])}
    errors = {offset: found for offset, found in outcomes.items() if isinstance(found, BadObject)}
    assert set(outcomes) - set(errors) == UNUSED[name]
    assert all(outcomes[offset] == COUNTS for offset in UNUSED[name])
    assert all(error.object_name == factories.ULID and error.section in FILES for error in errors.values())


@pytest.mark.slow
def test_a_changed_byte_of_meta_json_is_refused_in_words_or_is_a_value_nothing_checks(tmp_path: Path) -> None:
    outcomes = [outcome(tmp_path, **{"meta.json": damaged}) for _, damaged in flips(block_files()["meta.json"])]
    errors = [found for found in outcomes if isinstance(found, BadObject)]
    assert len(errors) > len(outcomes) / 2
    assert {error.section for error in errors} <= {"meta.json", "chunks/000001"}


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_short_is_refused(tmp_path: Path, name: str) -> None:
    for damaged in truncations(block_files()[name]):
        assert refusal(tmp_path, {name: damaged}).section in FILES


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    folder = write_block(tmp_path, block_files())
    (folder / name).unlink()
    with pytest.raises(BadObject) as refused:
        verify_block(folder)
    assert refused.value.section == (name if name != "tombstones" else "meta.json")


def series_with(*bodies: bytes) -> bytes:
    return index_bytes(series=bodies)


USUAL, SECOND = factories.SERIES
BIG = (1 << 64) - 1
LIES = [
    ("symbols out of order", index_bytes(symbols=[b"", b"b", b"a", b"x", b"y"]), OutOfOrder),
    ("a symbol twice", index_bytes(symbols=[b"", b"a", b"a", b"x", b"y"]), OutOfOrder),
    ("series out of order", series_with(SECOND, USUAL), OutOfOrder),
    ("a series twice", series_with(USUAL, USUAL), OutOfOrder),
    ("labels out of order", series_with(USUAL, series_body([2, 3, 1, 4], [])), OutOfOrder),
    ("a label name twice", series_with(USUAL, series_body([1, 3, 1, 4], [])), OutOfOrder),
    ("an empty label name", series_with(series_body([0, 3], []), SECOND), BadReference),
    ("a symbol that is none", series_with(USUAL, series_body([1, 5], [])), BadReference),
    ("labels without end", series_with(USUAL, factories.uvarint(BIG)), LimitExceeded),
    ("chunks without end", series_with(USUAL, bytes([1, 1, 4]) + factories.uvarint(BIG)), LimitExceeded),
    ("bytes after the chunks", series_with(USUAL, SECOND + b"\x00"), BadObject),
    ("chunks that overlap", series_with(series_body([1, 3], [(1000, 1030, 8), (1030, 1040, 40)]), SECOND), OutOfOrder),
    ("chunks out of order", series_with(series_body([1, 3], [(1040, 1040, 40), (1000, 1030, 8)]), SECOND), OutOfOrder),
    ("times beyond 64 bits", series_with(series_body([1, 3], [(1000, 1 << 63, 8)]), SECOND), BadObject),
    (
        "a reference below 0",
        series_with(series_body([1, 3], [(1000, 1030, 8), (1040, 1040, -1)]), SECOND),
        BadReference,
    ),
    (
        "a chunk file that is not there",
        series_with(USUAL, series_body([1, 4, 2, 3], [(1000, 1030, 1 << 32)])),
        BadObject,
    ),
    (
        "a postings list of a wrong series",
        index_bytes(postings=[*factories.POSTINGS[:3], (b"b", b"x", (0,))]),
        Inconsistent,
    ),
    ("a postings list too few", index_bytes(postings=factories.POSTINGS[:3], label_indices=()), Inconsistent),
    ("an empty postings list", index_bytes(postings=[*factories.POSTINGS, (b"b", b"y", ())]), Inconsistent),
    ("postings of no symbol", index_bytes(postings=[*factories.POSTINGS, (b"c", b"x", (0,))]), BadReference),
    ("postings out of order", index_bytes(postings=[factories.POSTINGS[0], *factories.POSTINGS[:0:-1]]), OutOfOrder),
    ("no list of all", index_bytes(postings=factories.POSTINGS[1:]), Inconsistent),
    ("no postings at all", index_bytes(postings=()), Inconsistent),
    ("a list of all with one only", index_bytes(postings=[(b"", b"", (0,)), *factories.POSTINGS[1:]]), Inconsistent),
    ("ids of a list not ascending", index_bytes(postings=[(b"", b"", (1, 0)), *factories.POSTINGS[1:]]), OutOfOrder),
    ("a label index too few", index_bytes(label_indices=factories.LABEL_INDICES[:1]), Inconsistent),
    ("a label index too many", index_bytes(label_indices=[*factories.LABEL_INDICES, (b"c", (3,))]), Inconsistent),
    ("a label index of other values", index_bytes(label_indices=[(b"a", (3,)), (b"b", (3,))]), Inconsistent),
    ("a label index of no symbol", index_bytes(label_indices=[(b"a", (3, 9)), (b"b", (3,))]), BadReference),
]


@pytest.mark.parametrize(("index", "kind"), [lie[1:] for lie in LIES], ids=[lie[0] for lie in LIES])
def test_an_index_that_lies_with_right_checksums_is_refused(
    tmp_path: Path, index: bytes, kind: type[BadObject]
) -> None:
    error = refusal(tmp_path, {"index": index})
    assert isinstance(error, kind)
    assert error.offset >= 0


def with_chunks(*records: bytes) -> bytes:
    """Return a chunk file whose first record is replaced, at the place where it was."""
    usual = factories.chunk_file()
    return patched(usual, 8, records[0])


CHUNK_LIES = [
    ("magic", b"\x00" + factories.chunk_file()[1:], UnknownFormat),
    ("version", patched(factories.chunk_file(), 4, b"\x02"), UnknownFormat),
    ("encoding 0", with_chunks(factories.record(0, factories.xor_chunk(1000, 4))), UnknownFormat),
    ("encoding 7", with_chunks(factories.record(7, factories.xor_chunk(1000, 4))), UnknownFormat),
    ("a length without end", with_chunks(factories.uvarint(BIG)), LimitExceeded),
    ("a length beyond the file", with_chunks(factories.uvarint(1 << 20)), Truncated),
    ("a checksum", with_chunks(factories.record(1, factories.xor_chunk(1000, 4))[:-1] + b"\x00"), ChecksumMismatch),
    ("another first time", with_chunks(factories.record(1, factories.xor_chunk(999, 4))), Inconsistent),
    ("another last time", with_chunks(factories.record(1, factories.xor_chunk(1000, 3))), Inconsistent),
]


@pytest.mark.parametrize(("chunks", "kind"), [lie[1:] for lie in CHUNK_LIES], ids=[lie[0] for lie in CHUNK_LIES])
def test_a_chunk_file_that_lies_is_refused(tmp_path: Path, chunks: bytes, kind: type[BadObject]) -> None:
    error = refusal(tmp_path, {"chunks/000001": chunks})
    assert isinstance(error, kind)
    assert error.section == "chunks/000001"


def test_samples_that_go_back_in_time_are_refused(tmp_path: Path) -> None:
    data = (3).to_bytes(2, "big") + factories.svarint(1000)
    # 1000, then 30 later, then 0 later: the last time is what the index says, the order is not.
    bits = f"{0x3FF0000000000000:064b}" + f"{30:08b}0" + "10" + f"{(1 << 14) - 30:014b}" + "0"
    error = refusal(tmp_path, {"chunks/000001": with_chunks(factories.record(1, data + factories.packed(bits)))})
    assert isinstance(error, OutOfOrder)


META_LIES = [
    {"ulid": "01M7XZJ9FZG1CC13C1QJZVN983"},
    {"minTime": 1001},
    {"maxTime": 1040},
    {"stats": {"numSamples": 8, "numSeries": 2, "numChunks": 3, "numTombstones": 1}},
    {"stats": {"numSamples": 9, "numSeries": 3, "numChunks": 3, "numTombstones": 1}},
    {"stats": {"numSamples": 9, "numSeries": 2, "numChunks": 2, "numTombstones": 1}},
    {"stats": {"numSamples": 9, "numSeries": 2, "numChunks": 3}},
    {"stats": {"numSamples": 9, "numSeries": 2, "numChunks": 3, "numTombstones": 1, "numFloatSamples": 8}},
]


@pytest.mark.parametrize("changes", META_LIES, ids=str)
def test_a_meta_json_that_lies_is_found_by_what_is_in_the_block(tmp_path: Path, changes: dict[str, object]) -> None:
    error = refusal(tmp_path, {"meta.json": json.dumps(factories.meta_document(**changes)).encode()})
    assert isinstance(error, Inconsistent)


def test_tombstones_of_a_series_that_does_not_exist_are_refused(tmp_path: Path) -> None:
    error = refusal(tmp_path, {"tombstones": factories.tombstones_bytes((77, 1000, 1010))})
    assert (error.section, type(error)) == ("tombstones", Inconsistent)


def test_a_huge_symbol_named_by_every_label_is_not_multiplied(tmp_path: Path) -> None:
    names = [b"n%04d" % number for number in range(40)]
    symbols = [*names, b"v" * (1 << 20)]
    labels = [ref for name in range(40) for ref in (name, 40)]
    folder = write_block(
        tmp_path,
        block_files()
        | {"index": index_bytes(symbols=symbols, series=[series_body(labels, [])], postings=(), label_indices=())},
    )
    with pytest.raises(LimitExceeded):
        next(BlockReader(folder).index.series())
