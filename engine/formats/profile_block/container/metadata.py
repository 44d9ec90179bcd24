"""Codec of block metadata: the protobuf message, and the footer with it at the end of a block's object.

The footer is ``protobuf | its length u32 BE | CRC32C of both u32 BE``. As the string table keeps its order, a decoded
message encodes to the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from google.protobuf.message import DecodeError

from engine.core import ulids
from engine.core.checksums import crc32c
from engine.core.errors import BadBlockName, BadObject, BadReference, ChecksumMismatch, Truncated, UnknownFormat
from engine.formats.profile_block.model import DATASET_INDEX, DATASET_PROFILES, BlockMeta, DatasetMeta, Labels
from engine.formats.proto import block_pb2

FORMAT_VERSION_MAX = 1
FOOTER_TAIL_BYTES = 8
"""Length and checksum after the message."""
FIRST_READ_BYTES = 64 << 10
"""Size of the first read, which contains nearly every footer."""
METADATA_BYTES_MAX = 64 << 20
SECTION_COUNTS = {DATASET_PROFILES: 3, DATASET_INDEX: 1}

_SECTION = "footer"


def encode_metadata(meta: BlockMeta) -> bytes:
    """Return the protobuf message without ``size``, for footers, dead letters and job specifications."""
    refs = _string_refs(meta.string_table)
    message = block_pb2.BlockMeta(
        format_version=meta.format_version,
        id=meta.id,
        tenant=refs[meta.tenant],
        shard=meta.shard,
        compaction_level=meta.compaction_level,
        min_time=meta.min_time_ms,
        max_time=meta.max_time_ms,
        created_by=refs[meta.created_by],
        datasets=[_dataset_message(dataset, refs) for dataset in meta.datasets],
        string_table=meta.string_table,
        metadata_offset=meta.metadata_offset,
    )
    return message.SerializeToString(deterministic=True)


def decode_metadata(data: bytes) -> BlockMeta:
    """Return the metadata of a message. Raises BadObject with the section "footer" if it is invalid."""
    message = block_pb2.BlockMeta()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise BadObject(_SECTION, 0, f"not a protobuf block metadata message: {error}") from error
    if message.format_version > FORMAT_VERSION_MAX:
        raise UnknownFormat(_SECTION, 0, f"block format version {message.format_version} is not supported")
    _check_id(message.id)
    strings = tuple(message.string_table)
    meta = BlockMeta(
        id=message.id,
        tenant=_string(strings, message.tenant),
        shard=message.shard,
        compaction_level=message.compaction_level,
        min_time_ms=message.min_time,
        max_time_ms=message.max_time,
        datasets=tuple(_dataset(dataset, strings) for dataset in message.datasets),
        string_table=strings,
        created_by=_string(strings, message.created_by),
        size=message.size,
        metadata_offset=message.metadata_offset,
        format_version=message.format_version,
    )
    _check_extent(meta)
    return meta


def encode_footer(meta: BlockMeta) -> bytes:
    """Return the footer: message, length, checksum. ``metadata_offset`` must be its position in the object."""
    message = encode_metadata(meta)
    covered = message + len(message).to_bytes(4, "big")
    return covered + crc32c(covered).to_bytes(4, "big")


def decode_footer(tail: bytes, object_size: int) -> BlockMeta:
    """Return the metadata of the footer at the end of ``tail``, the last bytes of an object of ``object_size`` bytes.

    Its ``size`` is ``object_size``. Raises BadObject, and Truncated if the footer starts before ``tail``.
    """
    length = footer_length(tail, object_size)
    covered = tail[-length:-4]
    if len(tail) < length:
        raise Truncated(_SECTION, 0, f"the footer has {length} bytes, but only {len(tail)} were read")
    stored = int.from_bytes(tail[-4:], "big")
    if crc32c(covered) != stored:
        raise ChecksumMismatch(_SECTION, 0, f"stored checksum {stored:08x}, computed {crc32c(covered):08x}")
    meta = decode_metadata(covered[:-4])
    if meta.metadata_offset not in (0, object_size - length):
        reason = f"metadata_offset is {meta.metadata_offset}, the footer starts at {object_size - length}"
        raise BadReference(_SECTION, 0, reason)
    return replace(meta, size=object_size)


def footer_length(tail: bytes, object_size: int) -> int:
    """Return the size of the footer from the last 8 or more bytes of the object; nothing is verified yet."""
    if len(tail) < FOOTER_TAIL_BYTES:
        raise Truncated(_SECTION, -1, f"an object of {object_size} bytes is too short for a footer")
    message_bytes = int.from_bytes(tail[-8:-4], "big")
    if not 0 < message_bytes <= min(METADATA_BYTES_MAX, object_size - FOOTER_TAIL_BYTES):
        reason = f"a message of {message_bytes} bytes does not fit in {object_size} bytes; no metadata footer?"
        raise Truncated(_SECTION, -1, reason)
    return message_bytes + FOOTER_TAIL_BYTES


def read_footer(read: Callable[[int, int], bytes], object_size: int) -> BlockMeta:
    """Return the metadata of an object by ``read(offset, length)``, with one read unless it is very large."""
    first = min(object_size, FIRST_READ_BYTES)
    tail = read(object_size - first, first)
    length = footer_length(tail, object_size)
    if length > first:
        tail = read(object_size - length, length)
    return decode_footer(tail, object_size)


def read_tables_of_contents(metadata: bytes, positions: Iterable[int]) -> dict[int, tuple[int, ...]]:
    """Return the tables of contents of the datasets at these positions, without decoding the rest.

    ``metadata`` is a message that was validated when it was stored. Raises BadObject with the section "metadata" if it
    has been damaged since.
    """
    message = block_pb2.BlockMeta()
    try:
        message.ParseFromString(metadata)
    except DecodeError as error:
        raise BadObject("metadata", 0, f"not a protobuf block metadata message: {error}") from error
    tables: dict[int, tuple[int, ...]] = {}
    for position in positions:
        if not 0 <= position < len(message.datasets):
            raise BadReference("metadata", -1, f"dataset {position} of {len(message.datasets)}")
        tables[position] = tuple(message.datasets[position].table_of_contents)
    return tables


def label_strings(labels: Iterable[Labels]) -> Iterator[str]:
    """Yield the names and values of label sets in stored order."""
    for label_set in labels:
        for name, value in label_set:
            yield name
            yield value


def _string_refs(strings: Sequence[str]) -> dict[str, int]:
    refs: dict[str, int] = {"": 0}
    for ref, string in enumerate(strings):
        refs.setdefault(string, ref)
    return refs


def _dataset_message(dataset: DatasetMeta, refs: dict[str, int]) -> block_pb2.Dataset:
    labels: list[int] = []
    for label_set in dataset.labels:
        labels.append(len(label_set))
        labels.extend(refs[string] for string in label_strings([label_set]))
    return block_pb2.Dataset(
        tenant=refs[dataset.tenant],
        name=refs[dataset.name],
        min_time=dataset.min_time_ms,
        max_time=dataset.max_time_ms,
        table_of_contents=dataset.table_of_contents,
        size=dataset.size,
        labels=labels,
        format=dataset.format,
    )


def _check_id(block_id: str) -> None:
    try:
        ulids.parse(block_id)
    except BadBlockName as error:
        raise BadObject(_SECTION, 0, f"the block's id is not a ULID: {error}") from error


def _string(strings: Sequence[str], ref: int) -> str:
    if ref == 0 and not strings:
        return ""
    if not 0 <= ref < len(strings):
        raise BadReference(_SECTION, 0, f"string {ref} is not in the table of {len(strings)}")
    return strings[ref]


def _dataset(message: block_pb2.Dataset, strings: Sequence[str]) -> DatasetMeta:
    if message.format not in SECTION_COUNTS:
        raise UnknownFormat(_SECTION, 0, f"dataset format {message.format} is not supported")
    if len(message.table_of_contents) != SECTION_COUNTS[message.format]:
        reason = f"a dataset of format {message.format} has {len(message.table_of_contents)} sections"
        raise BadObject(_SECTION, 0, reason)
    return DatasetMeta(
        tenant=_string(strings, message.tenant),
        name=_string(strings, message.name),
        min_time_ms=message.min_time,
        max_time_ms=message.max_time,
        table_of_contents=tuple(message.table_of_contents),
        size=message.size,
        labels=tuple(_label_sets(message.labels, strings)),
        format=message.format,
    )


def _label_sets(refs: Sequence[int], strings: Sequence[str]) -> Iterator[Labels]:
    position = 0
    while position < len(refs):
        start, count = position + 1, refs[position]
        position = start + 2 * count
        if count < 0 or position > len(refs):
            raise BadReference(_SECTION, 0, f"a label set of {count} pairs does not fit in {len(refs) - start} numbers")
        names = [_string(strings, ref) for ref in refs[start:position]]
        yield tuple(zip(names[::2], names[1::2], strict=True))


def _check_extent(meta: BlockMeta) -> None:
    """Raise BadReference if a section ends before it starts or is outside of the object."""
    limit = meta.metadata_offset or meta.size or (1 << 63) - 1
    for dataset in meta.datasets:
        bounds = dataset.section_bounds()
        end = bounds[0][0] + dataset.size
        if end > limit or any(size < 0 for _, size in bounds):
            raise BadReference(
                _SECTION, 0, f"sections of dataset {dataset.name!r} are outside of the object or out of order"
            )
