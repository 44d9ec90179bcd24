"""Validate a pushed profile: limits, references inside their tables, a recent time; truncate where limits allow it.

Rules: ``docs/reference/formats/profile-api.md``, "Profile checks". The parser has validated the encoding.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engine.formats.pprof.pprof_model import Integers, Profile, Samples
from engine.ingest.model import PushLimits, Refused

MALFORMED = "malformed_profile"


def check_profile(profile: Profile, limits: PushLimits, *, now_ns: int) -> tuple[Profile, tuple[str, ...]]:
    """Return the profile, truncated where a limit requires it, and notes; the same object if nothing was changed.

    Raises Refused with the reason ``samples_limit``, ``sample_labels_limit``, ``not_in_ingestion_window`` or
    ``malformed_profile``. ``now_ns`` is unix nanoseconds.
    """
    _check_counts(profile.samples, limits)
    _check_time(profile.time_ns, limits, now_ns)
    _check_strings(profile)
    _check_references(profile)
    timed, timed_notes = _with_time_or_none(profile)
    cut, cut_notes = _with_short_stacks(timed, limits.stack_frames_max)
    short, short_notes = _with_short_strings(cut, limits.symbol_bytes_max)
    return short, (*timed_notes, *cut_notes, *short_notes)


def _check_counts(samples: Samples, limits: PushLimits) -> None:
    if len(samples) > limits.samples_max:
        raise Refused("samples_limit", f"the profile has {len(samples)} samples, the limit is {limits.samples_max}")
    most = int(np.diff(samples.label_starts).max(initial=0))
    if most > limits.sample_labels_max:
        message = f"a sample has {most} labels, the limit is {limits.sample_labels_max}"
        raise Refused("sample_labels_limit", message)


def _check_time(time_ns: int, limits: PushLimits, now_ns: int) -> None:
    if time_ns <= 0:
        return
    age = now_ns - time_ns
    if not -limits.newer_than_now_max_ns < age < limits.older_than_now_max_ns:
        side = f"{age / 1e9:.0f} s old" if age > 0 else f"{-age / 1e9:.0f} s in the future"
        message = f"the profile is {side}; is the sender's clock right? (time_nanos {time_ns})"
        raise Refused("not_in_ingestion_window", message)


def _check_strings(profile: Profile) -> None:
    if not profile.strings or profile.strings[0] != b"":
        raise _malformed("string 0 of the table is not empty")
    try:
        b"\0".join(profile.strings).decode()  # no UTF-8 sequence contains a zero byte: one call validates all
    except UnicodeDecodeError:
        _name_bad_string(profile.strings)
    for kind, _ in profile.sample_types:
        if 0 <= kind < len(profile.strings) and b"-" in profile.strings[kind]:
            raise _malformed(f"the sample type {profile.strings[kind].decode()!r} has a '-' in its name")


def _name_bad_string(strings: list[bytes]) -> None:
    for position, string in enumerate(strings):
        try:
            string.decode()
        except UnicodeDecodeError as error:
            raise _malformed(f"string {position} is not valid UTF-8: {error.reason}") from error


def _check_references(profile: Profile) -> None:
    owned = _references(profile)
    every = np.concatenate([refs for _, refs in owned])
    if every.min() < 0 or every.max() >= len(profile.strings):
        for owner, refs in owned:
            _check_inside(owner, refs, len(profile.strings))
    if (profile.locations.ids == 0).any():
        raise _malformed("location id is 0")
    if (profile.functions.ids == 0).any():
        raise _malformed("function id is 0")
    counts = np.diff(profile.samples.value_starts)
    if (counts != len(profile.sample_types)).any():
        wrong = int(np.flatnonzero(counts != len(profile.sample_types))[0])
        raise _malformed(f"sample {wrong} has {counts[wrong]} values for {len(profile.sample_types)} sample types")


def _references(profile: Profile) -> list[tuple[str, Integers]]:
    """Return every column of string references with the kind of its owner."""
    mappings, functions, samples = profile.mappings, profile.functions, profile.samples
    own = [profile.drop_frames, profile.keep_frames, profile.default_sample_type, *profile.comments]
    types = [ref for pair in (*profile.sample_types, profile.period_type) for ref in pair]
    return [
        ("a sample or period type", np.array(types, np.int64)),
        ("the profile", np.array(own, np.int64)),
        ("a mapping", mappings.filenames),
        ("a mapping", mappings.build_ids),
        ("a function", functions.names),
        ("a function", functions.system_names),
        ("a function", functions.filenames),
        ("a label", samples.label_keys),
        ("a label", samples.label_strings),
        ("a label", samples.label_units),
    ]


def _check_inside(owner: str, refs: Integers, strings: int) -> None:
    outside = (refs < 0) | (refs >= strings)
    if outside.any():
        ref = int(refs[np.flatnonzero(outside)[0]])
        raise _malformed(f"{owner} names string {ref}, the table has {strings}")


def _with_time_or_none(profile: Profile) -> tuple[Profile, tuple[str, ...]]:
    if profile.time_ns >= 0 and profile.duration_ns >= 0:
        return profile, ()
    mended = replace(profile, time_ns=max(profile.time_ns, 0), duration_ns=max(profile.duration_ns, 0))
    return mended, ("a negative time or duration was taken for none",)


def _with_short_stacks(profile: Profile, frames_max: int) -> tuple[Profile, tuple[str, ...]]:
    """Truncate stacks; keep the frames nearest the root, which come last."""
    samples = profile.samples
    depths = np.diff(samples.location_starts)
    if int(depths.max(initial=0)) <= frames_max:
        return profile, ()
    ends = np.repeat(samples.location_starts[1:], depths)
    kept = ends - np.arange(len(samples.location_ids)) <= frames_max
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(np.minimum(depths, frames_max), dtype=np.int64)))
    cut = replace(samples, location_starts=starts, location_ids=samples.location_ids[kept])
    count = int((depths > frames_max).sum())
    return replace(profile, samples=cut), (f"{count} stacks deeper than {frames_max} frames were cut at the leaf",)


def _with_short_strings(profile: Profile, bytes_max: int) -> tuple[Profile, tuple[str, ...]]:
    """Truncate strings; keep the end, which distinguishes functions with a long common prefix."""
    if max(map(len, profile.strings), default=0) <= bytes_max:
        return profile, ()
    count = sum(len(string) > bytes_max for string in profile.strings)
    strings = [_end_of(string, bytes_max) for string in profile.strings]
    return replace(profile, strings=strings), (f"{count} strings longer than {bytes_max} bytes were cut to their end",)


def _end_of(string: bytes, bytes_max: int) -> bytes:
    if len(string) <= bytes_max:
        return string
    return string[-bytes_max:].decode("utf-8", "ignore").encode()


def _malformed(message: str) -> Refused:
    return Refused(MALFORMED, message)
