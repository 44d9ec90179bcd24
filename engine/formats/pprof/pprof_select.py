"""Selection of rows of a profile's tables by position, and of the rows that a set of samples references.

All functions return new tables and do not modify their arguments; unchanged columns are shared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from engine.formats.pprof.pprof_model import Functions, Ids, Integers, Locations, Mappings, Profile, Samples

Mask = NDArray[np.bool_]


def starts_of(counts: Integers) -> Integers:
    """Return the starts of a ragged table from the number of items of each owner."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)))


def owners_of(starts: Integers) -> Integers:
    """Return the position of the owner of each item of a ragged table."""
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def starts_without(starts: Integers, kept: Mask) -> Integers:
    """Return the starts of a ragged table of which only the ``kept`` items remain."""
    return starts_of(kept.astype(np.int64))[starts]


def take_ragged(starts: Integers, owners: Integers) -> tuple[Integers, Integers]:
    """Return the positions of the items of ``owners``, and the starts of a ragged table of them."""
    first = starts[owners]
    counts = starts[owners + 1] - first
    new_starts = starts_of(counts)
    return np.arange(new_starts[-1]) + np.repeat(first - new_starts[:-1], counts), new_starts


def take_samples(samples: Samples, positions: Integers) -> Samples:
    """Return the samples at ``positions``, in that order."""
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
    """Return the samples with the labels at ``positions``, which the new ``starts`` assign to them."""
    return replace(
        samples,
        label_starts=starts,
        label_keys=samples.label_keys[positions],
        label_strings=samples.label_strings[positions],
        label_numbers=samples.label_numbers[positions],
        label_units=samples.label_units[positions],
    )


def take_locations(locations: Locations, positions: Integers) -> Locations:
    """Return the locations at ``positions``, with ids from 1."""
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
    """Return the functions at ``positions``, with ids from 1."""
    return Functions(
        ids=numbered(len(positions)),
        names=functions.names[positions],
        system_names=functions.system_names[positions],
        filenames=functions.filenames[positions],
        start_lines=functions.start_lines[positions],
    )


def take_mappings(mappings: Mappings, positions: Integers) -> Mappings:
    """Return the mappings at ``positions``, with ids from 1."""
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
    """Return the profile without locations and functions that no sample references; all mappings remain.

    Tables keep their order. Ids must be consecutive from 1, as after ``normalise``.
    """
    return _reached(profile, _table_order)


def reached_by(profile: Profile, samples: Samples) -> Profile:
    """Return a profile of ``samples`` and the rows they reference, with each table in order of first reference.

    Ids must be consecutive from 1, as after ``normalise``.
    """
    narrowed = _reached(replace(profile, samples=samples), _first_reference_order)
    kept, mapping_ids = _renumber(narrowed.locations.mapping_ids, _first_reference_order)
    return replace(
        narrowed,
        mappings=take_mappings(profile.mappings, kept),
        locations=replace(narrowed.locations, mapping_ids=mapping_ids),
    )


def with_used_strings(profile: Profile) -> Profile:
    """Return the profile without unreferenced strings, except string 0. All references must be valid."""
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
    """Return the distinct positions of ``ids`` in ``order``, and the ids renumbered for those positions."""
    kept = order(ids)
    new_ids = np.zeros(int(ids.max(initial=0)) + 1, np.uint64)
    new_ids[kept] = numbered(len(kept))
    return kept.astype(np.int64) - 1, new_ids[ids]


def _table_order(ids: Ids) -> Ids:
    return np.unique(ids)


def _first_reference_order(ids: Ids) -> Ids:
    distinct, first = np.unique(ids, return_index=True)
    return distinct[np.argsort(first)]
