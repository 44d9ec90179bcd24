"""Normalise a pushed pprof profile for storage: valid references and non-empty samples only.

The steps, in this order (each relies on the ones before):

1. String 0 becomes "", references outside the table become 0; what the block format cannot hold is cut.
2. Functions without an id are numbered by position (some .NET exporters write none).
3. Locations that have neither line nor address, or name an unknown mapping or function, go; those without a mapping get
   a shared stub. Samples with an unknown location or a wrong number of values go.
4. Labels without a key or a string value go; samples with a negative value or with zeros only go.
5. Samples are ordered by the hash of their stack and labels; equal ones are joined by adding their values.
6. Addresses of mappings that have functions, and of their locations, are cleared.
7. Locations and functions that no sample reaches any more go; mappings stay.

The result is again a ``Profile``: ids are 1, 2, 3 ... in table order, every sample has one value per sample type, and
its labels are sorted by (key, value) ref. The hash takes locations by their ids after step 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import xxhash

from engine.core.errors import BadProfile, LimitExceeded
from engine.formats.pprof.pprof_model import MAPPING_HAS_FUNCTIONS, Ids, Integers, Locations, Mappings, Profile, Samples
from engine.formats.pprof.pprof_select import (
    Mask,
    numbered,
    owners_of,
    starts_of,
    starts_without,
    take_labels,
    take_locations,
    take_samples,
    without_unreached,
)

STRING_BYTES_MAX = (1 << 16) - 1
"""Maximum bytes of a string; the block format stores the length in 16 bits.

A longer one (a C++ template name) is cut.
"""
LINES_MAX = 255
"""Maximum lines of a location; the block format stores the count in 8 bits. The innermost lines are kept."""
INT32_MAX = (1 << 31) - 1
"""Maximum line number; the block format stores it in 32 bits. A higher number becomes 0, which is unknown."""
INT64_MAX = (1 << 63) - 1
SAMPLE_TYPES_MAX = 64
"""Maximum sample types of one profile. Profilers send up to about ten; each becomes a series and a row."""

STACK_FRAMES_MAX = 8192
"""Maximum frames of one stack. Runtimes overflow their stacks or cut their profiles below this."""
FRAMES_MAX = 4_000_000
"""Maximum frames of all stacks of a profile; each may become a stack tree node, about 100 bytes while building."""


def wrong_time() -> BadProfile:
    """Return the error for a profile from before 1970, or of a negative duration."""
    return BadProfile("pprof", -1, "the profile's time or duration is negative; send unix nanoseconds")


def too_many_sample_types() -> LimitExceeded:
    """Return the error for more than SAMPLE_TYPES_MAX sample types."""
    return LimitExceeded("pprof", -1, f"the profile has more than {SAMPLE_TYPES_MAX} sample types")


def too_deep() -> LimitExceeded:
    """Return the error for a stack of more than STACK_FRAMES_MAX frames."""
    return LimitExceeded("pprof", -1, f"a stack has more than {STACK_FRAMES_MAX} frames; limit its depth")


def too_many_frames() -> LimitExceeded:
    """Return the error for more than FRAMES_MAX frames in all stacks."""
    return LimitExceeded("pprof", -1, f"the stacks have more than {FRAMES_MAX} frames; send shorter profiles")


def values_too_large() -> BadProfile:
    """Return the error for values whose sum exceeds the format's range."""
    return BadProfile("pprof", -1, "the values of a sample type sum to more than 63 bits")


def normalise(profile: Profile, *, received_at_ns: int) -> Profile:
    """Apply the steps above; a profile without a time gets ``received_at_ns`` (unix nanoseconds).

    The result may have no samples. Raises BadProfile if a time is negative or the values of a sample type sum to more
    than 63 bits; LimitExceeded if there are too many sample types or frames.
    """
    if profile.time_ns < 0 or profile.duration_ns < 0:
        raise wrong_time()
    _check_sizes(profile)
    valid = _with_valid_references(_with_valid_strings(profile))
    samples = _order_and_join(_worth_keeping(_string_labels_only(valid.samples), len(valid.sample_types)))
    cleared = _without_addresses(replace(valid, samples=samples, time_ns=profile.time_ns or received_at_ns))
    return without_unreached(cleared)


def _check_sizes(profile: Profile) -> None:
    if len(profile.sample_types) > SAMPLE_TYPES_MAX:
        raise too_many_sample_types()
    if int(np.diff(profile.samples.location_starts).max(initial=0)) > STACK_FRAMES_MAX:
        raise too_deep()
    if len(profile.samples.location_ids) > FRAMES_MAX:
        raise too_many_frames()


def positions_of(ids: Ids, wanted: Ids) -> Integers:
    """Return the position of each wanted id among ``ids``, the first where it repeats, -1 where it is absent or 0."""
    if not len(ids):
        return np.full(len(wanted), -1, np.int64)
    order = np.argsort(ids, kind="stable")
    found = order[np.minimum(np.searchsorted(ids[order], wanted), len(ids) - 1)]
    return np.where((ids[found] == wanted) & (wanted != 0), found, -1)


def _with_valid_strings(profile: Profile) -> Profile:
    strings = [string[:STRING_BYTES_MAX] for string in profile.strings]
    if b"" not in strings:
        strings.append(b"")
    empty = strings.index(b"")
    strings[0], strings[empty] = strings[empty], strings[0]

    def refs(column: Integers) -> Integers:
        swapped = np.where(column == 0, empty, np.where(column == empty, 0, column))
        return np.where((swapped < 0) | (swapped >= len(strings)), 0, swapped)

    def pairs(value_types: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        flat = refs(np.array(value_types, np.int64).reshape(-1)).tolist()
        return list(zip(flat[::2], flat[1::2], strict=True))

    mappings, functions, samples = profile.mappings, profile.functions, profile.samples
    return replace(
        profile,
        strings=strings,
        sample_types=pairs(profile.sample_types),
        period_type=pairs([profile.period_type])[0],
        mappings=replace(mappings, filenames=refs(mappings.filenames), build_ids=refs(mappings.build_ids)),
        functions=replace(
            functions,
            names=refs(functions.names),
            system_names=refs(functions.system_names),
            filenames=refs(functions.filenames),
            start_lines=_int32(functions.start_lines),
        ),
        locations=replace(profile.locations, line_numbers=_int32(profile.locations.line_numbers)),
        samples=replace(samples, label_keys=refs(samples.label_keys), label_strings=refs(samples.label_strings)),
    )


def _int32(column: Integers) -> Integers:
    return np.where((column < -INT32_MAX) | (column > INT32_MAX), 0, column)


def _with_valid_references(profile: Profile) -> Profile:
    """Apply steps 2 and 3: number every table from 1, and make every reference valid."""
    function_ids = np.where(profile.functions.ids == 0, numbered(len(profile.functions)), profile.functions.ids)
    mappings, locations, kept = _valid_locations(profile, function_ids)
    kept_id = np.where(kept, np.cumsum(kept), 0)
    positions = positions_of(profile.locations.ids, profile.samples.location_ids)
    location_ids = np.where(positions < 0, 0, kept_id[positions]) if len(kept) else np.zeros(len(positions), np.int64)
    samples = replace(profile.samples, location_ids=location_ids.astype(np.uint64))
    return replace(
        profile,
        mappings=mappings,
        locations=locations,
        functions=replace(profile.functions, ids=numbered(len(profile.functions))),
        samples=_valid_samples(samples, len(profile.sample_types)),
    )


def _valid_locations(profile: Profile, function_ids: Ids) -> tuple[Mappings, Locations, Mask]:
    """Return the mappings (with a stub if one is needed), the locations that are kept, and their mask."""
    locations = _cut_lines(profile.locations)
    line_functions = positions_of(function_ids, locations.line_function_ids)
    mapping_positions = positions_of(profile.mappings.ids, locations.mapping_ids)
    has_broken_line = _any_of(locations.line_starts, line_functions < 0)
    has_place = (np.diff(locations.line_starts) > 0) | (locations.addresses != 0)
    without_mapping = locations.mapping_ids == 0
    kept = has_place & ~has_broken_line & (without_mapping | (mapping_positions >= 0))
    mapping_ids = np.where(without_mapping, len(profile.mappings), mapping_positions) + 1
    renumbered = replace(
        locations,
        mapping_ids=mapping_ids.astype(np.uint64),
        line_function_ids=(line_functions + 1).astype(np.uint64),
    )
    needs_stub = bool((kept & without_mapping).any())
    mappings = replace(profile.mappings, ids=numbered(len(profile.mappings)))
    return _with_stub(mappings) if needs_stub else mappings, take_locations(renumbered, np.flatnonzero(kept)), kept


def _cut_lines(locations: Locations) -> Locations:
    first = locations.line_starts[owners_of(locations.line_starts)]
    kept = np.arange(len(locations.line_numbers)) - first < LINES_MAX
    return replace(
        locations,
        line_starts=starts_without(locations.line_starts, kept),
        line_function_ids=locations.line_function_ids[kept],
        line_numbers=locations.line_numbers[kept],
    )


def _with_stub(mappings: Mappings) -> Mappings:
    """Append the stub mapping for locations without one."""
    return Mappings(
        ids=numbered(len(mappings) + 1),
        memory_starts=np.append(mappings.memory_starts, np.uint64(0)),
        memory_limits=np.append(mappings.memory_limits, np.uint64(0)),
        file_offsets=np.append(mappings.file_offsets, np.uint64(0)),
        filenames=np.append(mappings.filenames, np.int64(0)),
        build_ids=np.append(mappings.build_ids, np.int64(0)),
        flags=np.append(mappings.flags, np.uint8(0)),
    )


def _any_of(starts: Integers, items: Mask) -> Mask:
    """Return for each owner of a ragged table whether any of its items is set."""
    counts = starts_of(items.astype(np.int64))[starts]
    return np.diff(counts) > 0


def _valid_samples(samples: Samples, type_count: int) -> Samples:
    kept = np.diff(samples.value_starts) == type_count
    kept &= ~_any_of(samples.location_starts, samples.location_ids == 0)
    return take_samples(samples, np.flatnonzero(kept))


def _string_labels_only(samples: Samples) -> Samples:
    """Keep labels with key and string value, sorted by both inside a sample."""
    kept = (samples.label_keys != 0) & (samples.label_strings != 0)
    owners = owners_of(samples.label_starts)
    order = np.lexsort((samples.label_strings, samples.label_keys, owners))
    positions = order[kept[order]]
    with_strings = take_labels(samples, positions, starts_without(samples.label_starts, kept))
    nothing = np.zeros(len(positions), np.int64)
    return replace(with_strings, label_numbers=nothing, label_units=nothing)


def _worth_keeping(samples: Samples, type_count: int) -> Samples:
    values = samples.values.reshape(-1, type_count)
    kept = np.flatnonzero((values >= 0).all(axis=1) & (values > 0).any(axis=1))
    _check_sums(values[kept])
    return take_samples(samples, kept)


def _check_sums(values: Integers) -> None:
    """Raise an error if a sum of values exceeds 63 bits, so that no partial sum can; halves are added to stay exact."""
    for high, low in zip((values >> 32).sum(axis=0), (values & 0xFFFFFFFF).sum(axis=0), strict=True):
        if (int(high) << 32) + int(low) > INT64_MAX:
            raise values_too_large()


def _order_and_join(samples: Samples) -> Samples:
    groups: dict[bytes, int] = {}
    group_of = [groups.setdefault(key, len(groups)) for key in _sample_keys(samples)]
    if not groups:
        return samples
    hashes = np.array([xxhash.xxh64_intdigest(key) for key in groups], np.uint64)
    order = np.argsort(hashes, kind="stable")
    values = samples.values.reshape(len(samples), -1)
    sums = np.zeros((len(groups), values.shape[1]), np.int64)
    np.add.at(sums, group_of, values)
    _, first_of = np.unique(group_of, return_index=True)
    joined = take_samples(samples, first_of[order])
    return replace(joined, values=sums[order].reshape(-1))


def _sample_keys(samples: Samples) -> list[bytes]:
    """Return the key of each sample: location ids as 8 bytes, then label key and value refs as 4 bytes each.

    A label value is never 0, so a label cannot equal a location id (those are below 2**32).
    """
    stacks = samples.location_ids.astype("<u8").tobytes()
    labels = np.stack((samples.label_keys, samples.label_strings), axis=1).astype("<u4").tobytes()
    stack_ends, label_ends = (8 * samples.location_starts).tolist(), (8 * samples.label_starts).tolist()
    return [
        stacks[stack_ends[i] : stack_ends[i + 1]] + labels[label_ends[i] : label_ends[i + 1]]
        for i in range(len(samples))
    ]


def _without_addresses(profile: Profile) -> Profile:
    mappings, locations = profile.mappings, profile.locations
    named = (mappings.flags & MAPPING_HAS_FUNCTIONS) != 0
    in_named = named[locations.mapping_ids.astype(np.int64) - 1]
    zero = np.uint64(0)
    return replace(
        profile,
        mappings=replace(
            mappings,
            memory_starts=np.where(named, zero, mappings.memory_starts),
            memory_limits=np.where(named, zero, mappings.memory_limits),
            file_offsets=np.where(named, zero, mappings.file_offsets),
        ),
        locations=replace(locations, addresses=np.where(in_named, zero, locations.addresses)),
    )
