"""Encoder of a ``Profile`` as pprof, for exports and the recorder of the demo.

The fields of each message ascend, repeated integers are packed and zero values are omitted, so that equal profiles give
equal bytes; parsing the result gives an equal profile.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator

from engine.formats.pprof.pprof_model import Functions, Locations, Mappings, Profile, Samples

UINT64_MASK = (1 << 64) - 1
GZIP_LEVEL = 6


def encode_profile(profile: Profile, *, compress: bool = True) -> bytes:
    """Return a profile as pprof; with ``compress`` it is gzipped, without a timestamp."""
    message = b"".join(_top_fields(profile))
    return gzip.compress(message, GZIP_LEVEL, mtime=0) if compress else message


def _top_fields(profile: Profile) -> Iterator[bytes]:
    for kind, unit in profile.sample_types:
        yield _message(1, _integer(1, kind) + _integer(2, unit))
    yield from _samples(profile.samples)
    yield from _mappings(profile.mappings)
    yield from _locations(profile.locations)
    yield from _functions(profile.functions)
    for string in profile.strings:
        yield _message(6, string)
    yield _integer(7, profile.drop_frames)
    yield _integer(8, profile.keep_frames)
    yield _integer(9, profile.time_ns)
    yield _integer(10, profile.duration_ns)
    if profile.period_type != (0, 0):
        yield _message(11, _integer(1, profile.period_type[0]) + _integer(2, profile.period_type[1]))
    yield _integer(12, profile.period)
    yield _packed(13, profile.comments)
    yield _integer(14, profile.default_sample_type)


def _samples(samples: Samples) -> Iterator[bytes]:
    columns = (samples.label_keys, samples.label_strings, samples.label_numbers, samples.label_units)
    labels = [_message(3, _integers(row)) for row in zip(*(column.tolist() for column in columns), strict=True)]
    locations, values = samples.location_ids.tolist(), samples.values.tolist()
    location_starts, value_starts = samples.location_starts.tolist(), samples.value_starts.tolist()
    label_starts = samples.label_starts.tolist()
    for i in range(len(samples)):
        yield _message(
            2,
            _packed(1, locations[location_starts[i] : location_starts[i + 1]])
            + _packed(2, values[value_starts[i] : value_starts[i + 1]])
            + b"".join(labels[label_starts[i] : label_starts[i + 1]]),
        )


def _mappings(mappings: Mappings) -> Iterator[bytes]:
    columns = (
        mappings.ids,
        mappings.memory_starts,
        mappings.memory_limits,
        mappings.file_offsets,
        mappings.filenames,
        mappings.build_ids,
    )
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for row, flags in zip(rows, mappings.flags.tolist(), strict=True):
        yield _message(3, _integers((*row, flags >> 3 & 1, flags >> 2 & 1, flags >> 1 & 1, flags & 1)))


def _locations(locations: Locations) -> Iterator[bytes]:
    line_columns = (locations.line_function_ids.tolist(), locations.line_numbers.tolist())
    lines = [_message(4, _integers(row)) for row in zip(*line_columns, strict=True)]
    columns = (locations.ids, locations.mapping_ids, locations.addresses)
    starts, folded = locations.line_starts.tolist(), locations.folded.tolist()
    for i, row in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        own_lines = b"".join(lines[starts[i] : starts[i + 1]])
        yield _message(4, _integers(row) + own_lines + _integer(5, folded[i]))


def _functions(functions: Functions) -> Iterator[bytes]:
    columns = (
        functions.ids,
        functions.names,
        functions.system_names,
        functions.filenames,
        functions.start_lines,
    )
    for row in zip(*(column.tolist() for column in columns), strict=True):
        yield _message(5, _integers(row))


def _integers(values: Iterable[int]) -> bytes:
    """Encode values as the fields 1, 2, 3 ... of a message."""
    return b"".join(_integer(number, value) for number, value in enumerate(values, 1))


def _integer(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value) if value else b""


def _message(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _packed(number: int, values: list[int]) -> bytes:
    return _message(number, b"".join(map(_varint, values))) if values else b""


def _varint(value: int) -> bytes:
    value &= UINT64_MASK
    if value < 0x80:
        return _ONE_BYTE[value]
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


_ONE_BYTE = [bytes([value]) for value in range(0x80)]
