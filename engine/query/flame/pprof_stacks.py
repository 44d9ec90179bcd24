"""Convert one sample type of a pprof file to a tree of function names. The input is untrusted."""

from __future__ import annotations

import numpy as np

from engine.core.errors import BadReference, LimitExceeded
from engine.formats.pprof.pprof_model import Profile
from engine.query.flame.stack_table import UNKNOWN_BINARY, StackTable
from engine.query.flame.tree import FlameTree

FRAMES_MAX = 4_000_000
"""Maximum location ids of all samples; two million take about a second."""
DEPTH_MAX = 5_000
"""Maximum locations of a stack; real stacks have up to about a thousand."""


def sample_types(profile: Profile) -> list[tuple[str, str]]:
    """Return (type, unit) of each value that samples have. Raises BadReference."""
    return [(_text(profile, kind), _text(profile, unit)) for kind, unit in profile.sample_types]


def default_sample_type(profile: Profile) -> int:
    """Return the position of the sample type to show first: the one the file names, else its last."""
    named = [place for place, (kind, _) in enumerate(profile.sample_types) if kind == profile.default_sample_type]
    return named[0] if named and profile.default_sample_type else len(profile.sample_types) - 1


def profile_tree(profile: Profile, position: int) -> FlameTree:
    """Return the stacks of a profile with the values of its ``position``-th sample type.

    Values that are not positive are skipped. Raises BadReference for an invalid reference, and LimitExceeded for too
    many or too deep stacks or if the values sum to 2^63 or more.
    """
    if not 0 <= position < len(profile.sample_types):
        raise BadReference("pprof", -1, f"there is no sample type {position}")
    samples = profile.samples
    counts = np.diff(samples.location_starts)
    if len(samples.location_ids) > FRAMES_MAX:
        raise LimitExceeded("pprof", -1, f"the samples have more than {FRAMES_MAX:,} frames")
    if len(counts) and counts.max() > DEPTH_MAX:
        raise LimitExceeded("pprof", -1, f"a stack has {counts.max():,} frames; {DEPTH_MAX:,} are allowed")
    short = np.diff(samples.value_starts) != len(profile.sample_types)
    if short.any():
        raise BadReference("pprof", -1, f"sample {int(short.argmax())} does not have a value for each sample type")
    parents, locations, ends = _nodes_of(profile)
    names, frame_starts, frames = _frames(profile)
    tree = FlameTree()
    table = StackTable(
        names=names,
        parents=np.array(parents, np.int32),
        locations=np.array(locations, np.int32),
        frame_starts=np.array(frame_starts, np.int32),
        frames=np.array(frames, np.int32),
    )
    values = samples.values[position :: len(profile.sample_types)]
    tree.add_stacks(table, np.array(ends, np.int32), values)
    return tree


def _nodes_of(profile: Profile) -> tuple[list[int], list[int], list[int]]:
    """Merge the stacks by location: parents and locations of nodes (0 is the root), and in which one a sample ends."""
    places = {number: place for place, number in enumerate(profile.locations.ids.tolist())}
    ids, starts = profile.samples.location_ids.tolist(), profile.samples.location_starts.tolist()
    parents, locations, ends = [-1], [0], []
    children: dict[tuple[int, int], int] = {}
    for sample in range(len(starts) - 1):
        node = 0
        for place in range(starts[sample + 1] - 1, starts[sample] - 1, -1):  # the root comes last
            key = (node, ids[place])
            child = children.get(key)
            if child is None:
                if ids[place] not in places:
                    raise BadReference("pprof", -1, f"sample {sample} names location {ids[place]}, which is not there")
                child = children[key] = len(parents)
                parents.append(node)
                locations.append(places[ids[place]])
            node = child
        ends.append(node)
    return parents, locations, ends


def _frames(profile: Profile) -> tuple[list[bytes], list[int], list[int]]:
    """Return distinct names, and of each location its frames as positions in them, innermost first."""
    functions = dict(zip(profile.functions.ids.tolist(), profile.functions.names.tolist(), strict=True))
    numbers: dict[bytes, int] = {}
    starts, frames = [0], []
    lines = profile.locations.line_function_ids.tolist()
    line_starts = profile.locations.line_starts.tolist()
    for location in range(len(profile.locations)):
        # Unknown functions are skipped; Go's pprof tool accepts such files too.
        own = [one for one in lines[line_starts[location] : line_starts[location + 1]] if one in functions]
        for function in own:
            frames.append(numbers.setdefault(_string(profile, functions[function]), len(numbers)))
        if not own:
            frames.append(numbers.setdefault(_address_name(profile, location), len(numbers)))
        starts.append(len(frames))
    return list(numbers), starts, frames


def _address_name(profile: Profile, location: int) -> bytes:
    """Return the name of a location without lines: ``<binary>!0x<hex>``."""
    mapping = np.flatnonzero(profile.mappings.ids == profile.locations.mapping_ids[location])
    binary = _string(profile, int(profile.mappings.filenames[mapping[0]])) if len(mapping) else b""
    return (binary.rpartition(b"/")[2] or UNKNOWN_BINARY) + b"!0x%x" % int(profile.locations.addresses[location])


def _string(profile: Profile, ref: int) -> bytes:
    if not 0 <= ref < len(profile.strings):
        raise BadReference("pprof", -1, f"string {ref} is not there")
    return profile.strings[ref]


def _text(profile: Profile, ref: int) -> str:
    return _string(profile, ref).decode("utf-8", "replace")
