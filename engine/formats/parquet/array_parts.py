"""Buffers of Arrow arrays as numpy arrays: values, bytes with offsets, validity."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Offsets = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


def is_text_or_bytes(kind: pa.DataType) -> bool:
    """Return whether a type has values of variable length: text or bytes."""
    types = pa.types
    return bool(
        types.is_string(kind) or types.is_binary(kind) or types.is_large_string(kind) or types.is_large_binary(kind)
    )


def valid_rows(array: pa.Array) -> Bytes:
    """Return 1 for each row with a value and 0 for each null."""
    found: Bytes = pc.is_valid(array).cast(pa.uint8()).to_numpy(zero_copy_only=False)
    return found


def bytes_and_offsets(array: pa.Array) -> tuple[Bytes, Offsets]:
    """Return the data of an array of strings or bytes, and the offsets of the rows in it."""
    kind = array.type
    is_large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    if not is_large and not pa.types.is_string(kind) and not pa.types.is_binary(kind):
        array, is_large = array.cast(pa.large_binary()), True
    _, raw_offsets, raw_data = array.buffers()
    if raw_offsets is None or not len(array):
        return np.zeros(0, np.uint8), np.zeros(len(array) + 1, np.int64)
    numbers = np.frombuffer(raw_offsets, np.int64 if is_large else np.int32)
    offsets = numbers[array.offset : array.offset + len(array) + 1].astype(np.int64)
    data = np.zeros(0, np.uint8) if raw_data is None else np.frombuffer(raw_data, np.uint8)
    return data[offsets[0] : offsets[-1]], offsets - offsets[0]


def fixed_bytes(array: pa.Array) -> Bytes:
    """Return the values of a fixed-width type (not bits) as rows of bytes; those of nulls are arbitrary."""
    width = array.type.byte_width
    if not len(array):
        return np.zeros((0, width), np.uint8)
    raw = np.frombuffer(array.buffers()[1], np.uint8)
    return raw[array.offset * width : (array.offset + len(array)) * width].reshape(len(array), width)


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array. Raises ArrowCapacityError if its text exceeds 2 GiB."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    combined = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if isinstance(combined, pa.ChunkedArray):
        raise pa.ArrowCapacityError("a column with more than 2 GiB of text does not fit in one array")
    return combined
