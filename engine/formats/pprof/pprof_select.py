"""Takes parts of a pprof profile's tables: rows by position, and what a set of samples still reaches.

All functions leave their argument alone and return new tables; columns that do not change are shared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from engine.formats.pprof.pprof_model import Functions, Ids, Integers, Locations, Mappings, Profile, Samples

Mask = NDArray[np.bool_]


def starts_of(counts: Integers) -> Integers:
    """Return the starts of a ragged table whose owners have these counts."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)))


def owners_of(starts: Integers) -> Integers:
    """Return for each item of a ragged table the position of its owner."""
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def starts_without(starts: Integers, kept: Mask) -> Integers:
    """Return the starts after only the ``kept`` items remain."""
    return starts_of(kept.astype(np.int64))[starts]


def take_ragged(starts: Integers, owners: Integers) -> tuple[Integers, Integers]:
    """Return the item positions of the given owners, and the starts of the table they make."""
    first = starts[owners]
    counts = starts[owners + 1] - first
    new_starts = starts_of(counts)
    return np.arange(new_starts[-1]) + np.repeat(first - new_starts[:-1], counts), new_starts


def take_samples(samples: Samples, positions: Integers) -> Samples:
    """Return the samples at these positions, in this order."""
    locations, location_starts = take_ragged(samples.location_starts, positions)
    values, value_starts = take_ragged(samples.value_starts, positions)
    labels, label_starts = take_ragged(samples.label_starts, positions)
    return Samples(
        location_starts=location_starts,
        location_ids=samples.location_ids[locations],
        value_starts=value_starts,
        values=samples.values[values],
        label_starts=label_starts,
        label_keys=samples.label_keys[labels],
        label_strings=samples.label_strings[labels],
        label_numbers=samples.label_numbers[labels],
        label_units=samples.label_units[labels],
    )


def take_labels(samples: Samples, positions: Integers, starts: Integers) -> Samples:
    """Return the samples with the labels at these positions, dealt out by new ``starts``."""
    return replace(
        samples,
        label_starts=starts,
        label_keys=samples.label_keys[positions],
        label_strings=samples.label_strings[positions],
        label_numbers=samples.label_numbers[positions],
        label_units=samples.label_units[positions],
    )


def take_locations(locations: Locations, positions: Integers) -> Locations:
    """Return the locations at these positions, numbered from 1."""
    lines, line_starts = take_ragged(locations.line_starts, positions)
    return Locations(
        ids=numbered(len(positions)),
        mapping_ids=locations.mapping_ids[positions],
        addresses=locations.addresses[positions],
        folded=locations.folded[positions],
        line_starts=line_starts,
        line_function_ids=locations.line_function_ids[lines],
        line_numbers=locations.line_numbers[lines],
    )


def take_functions(functions: Functions, positions: Integers) -> Functions:
    """Return the functions at these positions, numbered from 1."""
    return Functions(
        ids=numbered(len(positions)),
        names=functions.names[positions],
        system_names=functions.system_names[positions],
        filenames=functions.filenames[positions],
        start_lines=functions.start_lines[positions],
    )


def take_mappings(mappings: Mappings, positions: Integers) -> Mappings:
    """Return the mappings at these positions, numbered from 1."""
    return Mappings(
        ids=numbered(len(positions)),
        memory_starts=mappings.memory_starts[positions],
        memory_limits=mappings.memory_limits[positions],
        file_offsets=mappings.file_offsets[positions],
        filenames=mappings.filenames[positions],
        build_ids=mappings.build_ids[positions],
        flags=mappings.flags[positions],
    )


def numbered(count: int) -> Ids:
    """Return the ids 1 to ``count``."""
    return np.arange(1, count + 1, dtype=np.uint64)


def without_unreached(profile: Profile) -> Profile:
    """Drop the locations and functions no sample reaches; the tables keep their order, mappings all stay.

    The profile must be numbered from 1, as after ``normalise``.
    """
    return _reached(profile, _in_table_order)


def reached_by(profile: Profile, samples: Samples) -> Profile:
    """Return a profile of just these samples and what they reach, every table in the order it is first met.

    The profile must be numbered from 1, as after ``normalise``.
    """
    narrowed = _reached(replace(profile, samples=samples), _in_order_met)
    kept, mapping_ids = _renumber(narrowed.locations.mapping_ids, _in_order_met)
    return replace(
        narrowed,
        mappings=take_mappings(profile.mappings, kept),
        locations=replace(narrowed.locations, mapping_ids=mapping_ids),
    )


def with_used_strings(profile: Profile) -> Profile:
    """Drop the strings nothing names; string 0 stays. Every reference must be inside the table."""
    mappings, functions, samples = profile.mappings, profile.functions, profile.samples
    own = [profile.drop_frames, profile.keep_frames, profile.default_sample_type, *profile.comments]
    types = np.array([*profile.sample_types, profile.period_type], np.int64).reshape(-1)
    columns = [
        np.array([0, *own], np.int64),
        types,
        mappings.filenames,
        mappings.build_ids,
        functions.names,
        functions.system_names,
        functions.filenames,
        samples.label_keys,
        samples.label_strings,
        samples.label_units,
    ]
    used = np.unique(np.concatenate(columns))
    own_refs, *refs = (np.searchsorted(used, column).astype(np.int64) for column in columns)
    pairs = refs[0].tolist()
    return replace(
        profile,
        strings=[profile.strings[ref] for ref in used.tolist()],
        sample_types=list(zip(pairs[:-2:2], pairs[1:-2:2], strict=True)),
        period_type=(pairs[-2], pairs[-1]),
        drop_frames=int(own_refs[1]),
        keep_frames=int(own_refs[2]),
        default_sample_type=int(own_refs[3]),
        comments=own_refs[4:].tolist(),
        mappings=replace(mappings, filenames=refs[1], build_ids=refs[2]),
        functions=replace(functions, names=refs[3], system_names=refs[4], filenames=refs[5]),
        samples=replace(samples, label_keys=refs[6], label_strings=refs[7], label_units=refs[8]),
    )


def _reached(profile: Profile, order: Callable[[Ids], Ids]) -> Profile:
    location_positions, location_ids = _renumber(profile.samples.location_ids, order)
    locations = take_locations(profile.locations, location_positions)
    function_positions, function_ids = _renumber(locations.line_function_ids, order)
    return replace(
        profile,
        samples=replace(profile.samples, location_ids=location_ids),
        locations=replace(locations, line_function_ids=function_ids),
        functions=take_functions(profile.functions, function_positions),
    )


def _renumber(ids: Ids, order: Callable[[Ids], Ids]) -> tuple[Integers, Ids]:
    """Return the positions the ids name, each once and in ``order``, and the ids after only those positions remain."""
    kept = order(ids)
    new_ids = np.zeros(int(ids.max(initial=0)) + 1, np.uint64)
    new_ids[kept] = numbered(len(kept))
    return kept.astype(np.int64) - 1, new_ids[ids]


def _in_table_order(ids: Ids) -> Ids:
    return np.unique(ids)


def _in_order_met(ids: Ids) -> Ids:
    distinct, first = np.unique(ids, return_index=True)
    return distinct[np.argsort(first)]
