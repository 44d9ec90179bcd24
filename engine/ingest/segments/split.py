"""Split a normalised profile by its sample labels, and name the series of each part.

A *label group* is all samples whose string labels, apart from span and trace, are equal: one thread, one endpoint. Each
group becomes one series per sample type. Span and trace ids stay with the samples. Groups whose final labels turn out
equal (a sample label repeats one the push already has) are joined.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import xxhash

from engine.core.errors import BadProfile
from engine.formats.pprof.pprof_model import Integers, Profile, Samples
from engine.formats.pprof.pprof_select import reached_by, take_labels, take_samples
from engine.formats.profile_block.model import Labels
from engine.ingest.segments.label_memory import remembered

SPAN_LABEL = b"span_id"
SPAN_LABELS = (SPAN_LABEL, b"profile_id")
"""Names of the label with the id of a sample's trace span; the first is the canonical one."""
TRACE_LABEL = b"trace_id"
SPAN_BYTES = 8
TRACE_BYTES = 16

SERVICE_NAME = "service_name"
UNKNOWN_SERVICE = "unspecified"
"""Service name of a push without one."""
DROPPED_LABELS = ("__delta__", "__order__")
"""Labels that control the receiver; they are not part of the series."""
FIRST_LABELS = ("__profile_type__", "__service_name__")
"""Labels stored before all others, which are sorted by name."""

Group = tuple[tuple[int, int], ...]
"""(key, value) string refs of the labels a group shares."""


@dataclass(frozen=True, slots=True)
class LabelGroup:
    """A part of a profile with its push and sample labels (without those added per sample type).

    ``profile`` holds only what the group's samples reach and no sample labels. ``span_ids`` is None if the profile
    knows no spans, else 0 for a sample without one; ``trace_ids`` has None for a sample without one.
    """

    labels: Labels
    profile: Profile
    span_ids: list[int] | None
    trace_ids: list[bytes | None]


def split(profile: Profile, labels: Iterable[tuple[str, str]]) -> list[LabelGroup]:
    """Split a normalised profile pushed with these labels; without samples there are no groups."""
    external = external_labels(labels)
    links = _links(profile)
    groups: dict[Group, list[int]] = {}
    for position, group in enumerate(links.groups):
        groups.setdefault(group, []).append(position)
    joined: dict[Labels, list[int]] = {}
    for group in sorted(groups):
        pairs = [(profile.strings[key], profile.strings[value]) for key, value in group]
        joined.setdefault(with_sample_labels(external, pairs), []).extend(groups[group])
    if len(joined) == 1:
        return [_label_group(profile, only, members, links, whole=True) for only, members in joined.items()]
    return [_label_group(profile, own, members, links, whole=False) for own, members in joined.items()]


def external_labels(labels: Iterable[tuple[str, str]]) -> Labels:
    """Return the push's labels as every series has them: no receiver hints, no empty values, first of each name.

    Raises BadProfile if a label cannot be encoded as UTF-8.
    """
    return _external(tuple(labels))


@remembered
def _external(labels: Labels) -> Labels:
    kept: dict[str, str] = {}
    for name, value in labels:
        check_text(name, value)
        if name and value and name not in DROPPED_LABELS:
            kept.setdefault(name, value)
    kept.setdefault(SERVICE_NAME, UNKNOWN_SERVICE)
    return tuple(sorted(kept.items()))


def check_text(*texts: str) -> None:
    """Raise BadProfile for text with lone surrogates, which JSON allows and UTF-8 does not."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise BadProfile("pprof", -1, f"a label or annotation is not valid text: {text!a}") from error


def series_labels(labels: Labels, profile: Profile, sample_type: int) -> Labels:
    """Return the labels, in stored order, of a group's series for the sample type at this position."""
    return named_series(labels, *_value_type_strings(profile, sample_type))


@remembered
def named_series(labels: Labels, *value_types: bytes) -> Labels:
    """Return the same for the strings type, unit, period type and period unit."""
    kind, unit, period_type, period_unit = (string.decode("utf-8", "replace") for string in value_types)
    known = dict(labels)
    added = {
        "__service_name__": known[SERVICE_NAME],
        "__period_type__": period_type,
        "__period_unit__": period_unit,
        "__type__": kind,
        "__unit__": unit,
        "__profile_type__": ":".join((known.get("__name__", ""), kind, unit, period_type, period_unit)),
    }
    return stored_order({**known, **{name: value for name, value in added.items() if value}})


def stored_order(labels: dict[str, str]) -> Labels:
    """Return labels in stored order: type, service, then by name bytewise. Series are compared in this order."""
    first = [(name, labels[name]) for name in FIRST_LABELS if name in labels]
    rest = sorted((name.encode(), name) for name in labels if name not in FIRST_LABELS)
    return (*first, *((name, labels[name]) for _, name in rest))


def fingerprint(labels: Iterable[tuple[bytes, bytes]]) -> int:
    """Return the hash of a series' labels; it depends on the stored order."""
    return _fingerprint(tuple(labels))


@remembered
def _fingerprint(labels: tuple[tuple[bytes, bytes], ...]) -> int:
    return xxhash.xxh64_intdigest(b"".join(name + b"\xff" + value + b"\xff" for name, value in labels))


@dataclass(frozen=True, slots=True)
class _Links:
    """The group of each sample, its span (None: the profile has no spans) and its trace."""

    groups: list[Group]
    span_ids: list[int] | None
    trace_ids: list[bytes | None]


def _links(profile: Profile) -> _Links:
    samples, strings = profile.samples, profile.strings
    keys, values = samples.label_keys.tolist(), samples.label_strings.tolist()
    starts = samples.label_starts.tolist()
    span_keys = {ref for ref, string in enumerate(strings) if string in SPAN_LABELS}
    trace_keys = {ref for ref, string in enumerate(strings) if string == TRACE_LABEL}
    groups: list[Group] = []
    span_ids, trace_ids = [0] * len(samples), [None] * len(samples)  # type: tuple[list[int], list[bytes | None]]
    for i in range(len(samples)):
        shared = []
        for key, value in zip(keys[starts[i] : starts[i + 1]], values[starts[i] : starts[i + 1]], strict=True):
            if key in span_keys:
                span_ids[i] = span_ids[i] or int.from_bytes(_hex(strings[value], SPAN_BYTES) or b"", "little")
            elif key in trace_keys:
                trace_ids[i] = trace_ids[i] or _hex(strings[value], TRACE_BYTES)
            else:
                shared.append((key, value))
        groups.append(tuple(shared))
    return _Links(groups, span_ids if span_keys else None, trace_ids)


def _hex(text: bytes, size: int) -> bytes | None:
    """Return the id that a label has in hexadecimal; None if it is not an id of this size."""
    try:
        value = bytes.fromhex(text.decode("ascii")) if len(text) == 2 * size else b""
    except ValueError:
        return None
    return value if len(value) == size else None


def with_sample_labels(external: Labels, pairs: Iterable[tuple[bytes, bytes]]) -> Labels:
    """Return the labels of a group; a sample label does not replace one of the push."""
    labels = dict(external)
    for name, value in pairs:
        labels.setdefault(name.decode("utf-8", "replace"), value.decode("utf-8", "replace"))
    return tuple(sorted(labels.items()))


def _label_group(profile: Profile, labels: Labels, members: list[int], links: _Links, *, whole: bool) -> LabelGroup:
    samples, kept = _joined(profile.samples, members, links)
    without_labels = take_labels(samples, np.zeros(0, np.int64), np.zeros(len(samples) + 1, np.int64))
    return LabelGroup(
        labels=labels,
        profile=replace(profile, samples=without_labels) if whole else reached_by(profile, without_labels),
        span_ids=None if links.span_ids is None else [links.span_ids[i] for i in kept],
        trace_ids=[links.trace_ids[i] for i in kept],
    )


def _joined(samples: Samples, members: list[int], links: _Links) -> tuple[Samples, list[int]]:
    """Join the members with equal (stack, span, trace); return the samples and the member that stands for each."""
    stacks, starts = samples.location_ids.tobytes(), (8 * samples.location_starts).tolist()
    spans = links.span_ids or [0] * len(samples)
    first_of: dict[tuple[bytes, int, bytes | None], int] = {}
    group_of = [
        first_of.setdefault((stacks[starts[i] : starts[i + 1]], spans[i], links.trace_ids[i]), len(first_of))
        for i in members
    ]
    kept = [members[position] for position in _first_positions(group_of, len(first_of))]
    values = samples.values.reshape(len(samples), -1)
    sums = np.zeros((len(kept), values.shape[1]), np.int64)
    np.add.at(sums, group_of, values[members])
    return replace(take_samples(samples, np.array(kept, np.int64)), values=sums.reshape(-1)), kept


def _first_positions(group_of: list[int], count: int) -> list[int]:
    """Return where each group, numbered in order of appearance, appears first."""
    positions: Integers = np.unique(np.array(group_of, np.int64), return_index=True)[1]
    assert len(positions) == count
    return [int(position) for position in positions]


def _value_type_strings(profile: Profile, sample_type: int) -> list[bytes]:
    return [profile.strings[ref] for ref in (*profile.sample_types[sample_type], *profile.period_type)]
