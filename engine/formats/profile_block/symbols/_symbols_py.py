"""Reference implementation of the symbols codec in pure Python.

A section is ``partition data | index | footer``. The index has a header per partition, in ascending order of ids; it
lists the stack trees and the ranges of the four tables, each with a checksum. Fixed-width integers are big endian.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from engine.core.binary import ByteReader
from engine.core.checksums import crc32c
from engine.core.errors import BadReference, LimitExceeded, Truncated, UnknownFormat
from engine.formats.profile_block.model import Location, StackTree, SymbolPartition
from engine.formats.profile_block.symbols import _symbol_tables_py as tables
from engine.formats.profile_block.symbols._stack_tree_py import decode_tree, encode_tree
from engine.formats.profile_block.symbols.symbol_limits import (
    FUNCTION_BYTES,
    LINE_BYTES,
    LOCATION_BYTES,
    MAPPING_BYTES,
    NODE_BYTES,
    STRING_BYTES,
    decoded_bytes_max,
)

MAGIC = b"sym1"
VERSION = 3
FOOTER_BYTES = 24
INDEX_HEADER_BYTES = 32
TREE_HEADER_BYTES = 64
TABLE_HEADER_BYTES = 32
PARTITION_BYTES_MIN = 12 + 4 * TABLE_HEADER_BYTES
TREE_ENCODING = 1
ITEMS_PER_BLOCK_MAX = 1024

_SECTION = "symbols"
_Item = TypeVar("_Item")


class _Table(NamedTuple):
    """The range of a table's blocks. Block headers have ``header_size`` bytes; ``format`` identifies the table."""

    offset: int
    size: int
    crc: int
    item_count: int
    items_per_block: int
    header_size: int
    format: int


class _Tree(NamedTuple):
    offset: int
    size: int
    node_count: int
    stack_count: int
    max_nodes: int
    crc: int


_LOCATIONS, _MAPPINGS, _FUNCTIONS, _STRINGS = (28, 1), (32, 3), (24, 2), (12, 4)
"""Block header size and format number of each table, in the order of a partition header."""
_ITEM_BYTES = (LOCATION_BYTES, MAPPING_BYTES, FUNCTION_BYTES, STRING_BYTES)
_KINDS = (_LOCATIONS, _MAPPINGS, _FUNCTIONS, _STRINGS)


def decode_symbols(data: bytes) -> list[SymbolPartition]:
    """Return the partitions in ascending order of ids. Raises BadObject.

    All checksums and references are verified, except the functions of lines in a partition without functions: such
    lines have no meaning, and a merge drops them.
    """
    if len(data) < FOOTER_BYTES + INDEX_HEADER_BYTES:
        raise Truncated(_SECTION, 0, f"{len(data)} bytes are too short for a symbols section")
    index = _open_index(data)
    data_end = index.position - INDEX_HEADER_BYTES
    budget = data_end
    charges = _Charges(decoded_bytes_max(len(data)))
    partitions: list[SymbolPartition] = []
    for _ in range(index.count(PARTITION_BYTES_MIN)):
        start = index.position
        partition_id, trees, ranges = _read_header(index)
        if partitions and partition_id <= partitions[-1].id:
            raise BadReference(_SECTION, start, "partitions are not in ascending order of id")
        budget -= sum(tree.size for tree in trees) + sum(table.size for table in ranges)
        if budget < 0:
            raise LimitExceeded(_SECTION, start, f"the partitions need more than the {data_end} bytes before the index")
        partitions.append(_read_partition(data[:data_end], partition_id, trees, ranges, charges))
    index.expect_end()
    return partitions


def _open_index(data: bytes) -> ByteReader:
    """Verify the checksums of footer and index; return a reader of the partition headers."""
    start = len(data) - FOOTER_BYTES
    footer = ByteReader(data, _SECTION, start).checked(FOOTER_BYTES - 4)
    _expect_magic(footer)
    offset = footer.u64()
    if offset > start - INDEX_HEADER_BYTES - 8:
        raise BadReference(_SECTION, start, f"the index at {offset} does not fit before the footer at {start}")
    index = ByteReader(data, _SECTION, offset, start).checked(start - offset - 4)
    _expect_magic(index)
    index.take(8)
    size, first = index.u64(), index.u64()
    if (size, first) != (index.end - index.position, INDEX_HEADER_BYTES):
        raise BadReference(_SECTION, offset, f"partition headers of {size} bytes at {first} do not match the index")
    return index


def _expect_magic(reader: ByteReader) -> None:
    start = reader.position
    magic, version = reader.take(4), reader.u32()
    if magic != MAGIC or version != VERSION:
        raise UnknownFormat(_SECTION, start, f"magic {magic!r} version {version}, expected sym1 version {VERSION}")


def _read_header(index: ByteReader) -> tuple[int, list[_Tree], list[_Table]]:
    partition_id = index.u64()
    trees = [_read_tree_header(index) for _ in range(index.count(TREE_HEADER_BYTES))]
    return partition_id, trees, [_read_table_header(index, *kind) for kind in _KINDS]


def _read_tree_header(index: ByteReader) -> _Tree:
    start = index.position
    offset, size = index.u64(), index.u64()
    index.take(11)  # partition id, ordinal, zero
    if (encoding := index.u8()) != TREE_ENCODING:
        raise UnknownFormat(_SECTION, start, f"unknown stack tree encoding {encoding}")
    index.take(4)
    stack_count, node_count = index.u32(), index.u32()
    index.take(4)
    max_nodes = index.u32()
    index.take(12)
    return _Tree(offset, size, node_count, stack_count, max_nodes, index.u32())


def _read_table_header(index: ByteReader, header_size: int, table_format: int) -> _Table:
    start = index.position
    table = _Table(index.u64(), index.u32(), index.u32(), index.u32(), index.u32(), index.u16(), index.u16())
    index.take(4)  # padding
    if (table.header_size, table.format) != (header_size, table_format):
        reason = f"a table has format {table.format} and headers of {table.header_size} bytes, expected {table_format}"
        raise UnknownFormat(_SECTION, start, reason)
    if table.item_count and not 0 < table.items_per_block <= ITEMS_PER_BLOCK_MAX:
        raise LimitExceeded(_SECTION, start, f"blocks of {table.items_per_block} items exceed the maximum")
    return table


def _read_partition(
    data: bytes, partition_id: int, trees: Sequence[_Tree], ranges: Sequence[_Table], charges: _Charges
) -> SymbolPartition:
    locations, mappings, functions, strings = ranges
    for table, item_bytes in zip(ranges, _ITEM_BYTES, strict=True):
        charges.take(table.item_count * item_bytes, table.offset)
    for tree in trees:
        charges.take(tree.node_count * NODE_BYTES, tree.offset)
    partition = SymbolPartition(
        id=partition_id,
        strings=_read_table(data, strings, tables.read_strings),
        mappings=_read_table(data, mappings, tables.read_mappings),
        functions=_read_table(data, functions, tables.read_functions),
        locations=_read_table(data, locations, _charged_locations(charges)),
        trees=[],
    )
    check_references(partition, ranges[0].offset)
    partition.trees = [_read_tree(data, tree, len(partition.locations)) for tree in trees]
    if len({tree.max_nodes for tree in trees}) > 1 or (len(trees) > 1 and trees[0].max_nodes == 0):
        raise BadReference(_SECTION, trees[0].offset, "the trees of a partition differ in max nodes")
    return partition


def _charged_locations(charges: _Charges) -> Callable[[ByteReader, int], list[Location]]:
    def read(reader: ByteReader, count: int) -> list[Location]:
        start = reader.position
        return tables.read_locations(reader, count, lambda lines: charges.take(lines * LINE_BYTES, start))

    return read


class _Charges:
    """Limits the total decoded size of the items of a section, by the sizes of the compiled reader."""

    def __init__(self, most: int) -> None:
        self._left = most

    def take(self, size: int, offset: int) -> None:
        self._left -= size
        if self._left < 0:
            raise LimitExceeded(_SECTION, offset, "the symbols decode to far more than the size of the section")


def _checked_range(data: bytes, offset: int, size: int, crc: int) -> ByteReader:
    reader = ByteReader(data, _SECTION, min(offset, len(data)))
    reader.check_crc(offset, crc32c(reader.take(size)), crc)
    return ByteReader(data, _SECTION, offset, offset + size)


def _read_table(data: bytes, table: _Table, read: Callable[[ByteReader, int], list[_Item]]) -> list[_Item]:
    reader = _checked_range(data, table.offset, table.size, table.crc)
    # Locations and strings need at least a byte each, and distinct functions and mappings need distinct strings.
    if table.item_count > len(data):
        raise LimitExceeded(_SECTION, table.offset, f"{table.item_count} items do not fit in {len(data)} bytes")
    items: list[_Item] = []
    while len(items) < table.item_count:
        items += read(reader, min(table.items_per_block, table.item_count - len(items)))
    reader.expect_end()
    return items


def _read_tree(data: bytes, header: _Tree, location_count: int) -> StackTree:
    reader = _checked_range(data, header.offset, header.size, header.crc)
    tree = decode_tree(reader, header.node_count, location_count)
    tree.stack_count, tree.max_nodes = header.stack_count, header.max_nodes
    return tree


def check_references(partition: SymbolPartition, offset: int) -> None:
    """Raise BadReference if a reference between tables is out of range; trees are not checked."""
    string_count = len(partition.strings)
    for mapping in partition.mappings:
        if not (0 <= mapping.filename < string_count and 0 <= mapping.build_id < string_count):
            raise BadReference(_SECTION, offset, f"a mapping refers to a string beyond {string_count}")
    for function in partition.functions:
        if not all(0 <= ref < string_count for ref in function[:3]):
            raise BadReference(_SECTION, offset, f"a function refers to a string beyond {string_count}")
    for location in partition.locations:
        _check_location(location, len(partition.mappings), len(partition.functions), offset)


def _check_location(location: Location, mapping_count: int, function_count: int, offset: int) -> None:
    if not 0 <= location.mapping < mapping_count:
        raise BadReference(_SECTION, offset, f"a location refers to mapping {location.mapping} of {mapping_count}")
    if function_count and not all(0 <= function < function_count for function, _ in location.lines):
        raise BadReference(_SECTION, offset, f"a location refers to a function beyond {function_count}")


def encode_symbols(partitions: Sequence[SymbolPartition]) -> bytes:
    """Return a section of partitions. Raises LimitExceeded for a string or location beyond the format's limits."""
    out = bytearray()
    in_order = sorted(partitions, key=lambda partition: partition.id)
    headers = b"".join(_write_partition(out, partition) for partition in in_order)
    headers = len(in_order).to_bytes(4, "big") + headers
    index_offset = len(out)
    start = MAGIC + VERSION.to_bytes(4, "big")
    index = start + bytes(8) + len(headers).to_bytes(8, "big") + INDEX_HEADER_BYTES.to_bytes(8, "big") + headers
    footer = start + index_offset.to_bytes(8, "big") + bytes(4)
    for part in (index, footer):
        out += part + crc32c(part).to_bytes(4, "big")
    return bytes(out)


def _write_partition(out: bytearray, partition: SymbolPartition) -> bytes:
    """Append the data of a partition; return its header."""
    strings = _write_table(out, partition.strings, tables.write_strings, _STRINGS)
    mappings = _write_table(out, partition.mappings, tables.write_mappings, _MAPPINGS)
    functions = _write_table(out, partition.functions, tables.write_functions, _FUNCTIONS)
    locations = _write_table(out, partition.locations, tables.write_locations, _LOCATIONS)
    header = partition.id.to_bytes(8, "big") + len(partition.trees).to_bytes(4, "big")
    for ordinal, tree in enumerate(partition.trees):
        header += _write_tree(out, partition.id, ordinal, tree)
    return header + locations + mappings + functions + strings


def _write_table(
    out: bytearray, items: Sequence[_Item], write: Callable[[Sequence[_Item]], bytes], kind: tuple[int, int]
) -> bytes:
    step = tables.ITEMS_PER_BLOCK
    body = b"".join(write(items[start : start + step]) for start in range(0, len(items), step))
    offset = len(out)
    out += body
    fields = (len(body), crc32c(body), len(items), step)
    numbers = b"".join(field.to_bytes(4, "big") for field in fields)
    return offset.to_bytes(8, "big") + numbers + kind[0].to_bytes(2, "big") + kind[1].to_bytes(2, "big") + bytes(4)


def _write_tree(out: bytearray, partition_id: int, ordinal: int, tree: StackTree) -> bytes:
    body = encode_tree(tree)
    offset = len(out)
    out += body
    place = b"".join(field.to_bytes(8, "big") for field in (offset, len(body), partition_id))
    counts = (tree.stack_count, len(tree.parents), 0, tree.max_nodes)
    numbers = b"".join(count.to_bytes(4, "big") for count in counts)
    encoding = ordinal.to_bytes(2, "big") + bytes([0, TREE_ENCODING]) + bytes(4)
    return place + encoding + numbers + bytes(12) + crc32c(body).to_bytes(4, "big")
