"""pprof profiles pushed to ``/ingest``: detection of the metric, and repairs for some profilers.

Rules: ``docs/reference/formats/profile-api.md``, "pprof at /ingest". Sample types and values are not changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from engine.formats.pprof.pprof import UnpackBudget
from engine.formats.pprof.pprof_model import Profile
from engine.ingest.application_names import ApplicationName
from engine.ingest.labels import check_labels
from engine.ingest.model import NANOSECONDS_PER_SECOND, PushedProfile, PushLimits, Refused
from engine.ingest.profile_checks import MALFORMED
from engine.ingest.push import checked_profile, parsed_pprof
from engine.ingest.text_profiles import push_labels

CONFIG_BYTES_MAX = 64 << 10
NAME_BYTES_MAX = 16 << 20
"""Maximum bytes of all function names with the file prepended."""
_DISPLAY_NAMES = {
    "samples": "cpu",
    "goroutine": "goroutines",
    "contentions": "mutex_count",
    "delay": "mutex_duration",
}
"""Default display names of Go sample types."""
_FILENAME_SPIES = frozenset({"pyspy", "rbspy", "scripting"})
_DOTNET_SPY = "dotnetspy"
_YEAR_NS = 365 * 86_400 * NANOSECONDS_PER_SECOND


def pushed_pprof(
    application: ApplicationName,
    data: bytes,
    *,
    config: bytes,
    spy: str,
    from_ns: int,
    limits: PushLimits,
    now_ns: int,
    budget: UnpackBudget,
) -> PushedProfile:
    """Parse, repair and validate a profile; ``config`` is the form's ``sample_type_config`` or empty.

    ``from_ns`` replaces a time in 1970, which has a wrong unit. Raises Refused with what to change in the sender.
    """
    names = _display_names(config)
    profile, message = parsed_pprof(data, limits, budget)
    repaired = profile
    for repair_profile in (_with_file_in_name(spy), _with_function_ids(spy, names), _in_this_century(from_ns)):
        repaired = repair_profile(repaired)
    labels = check_labels(push_labels(application, application.name, metric_of(repaired, names), spy), limits)
    return checked_profile(repaired, message if repaired is profile else None, labels, limits, now_ns=now_ns)


def metric_of(profile: Profile, display_names: Mapping[str, str]) -> str:
    """Return the metric of the sample types: the first known one, else the name of the last."""
    types = [_string(profile, kind) for kind, _ in profile.sample_types]
    if "wall" in types:
        return "wall"
    named = [display_names.get(one, one) for one in types]
    return next((metric for one in named if (metric := _metric(one))), named[-1])


def _metric(name: str) -> str:
    if "cpu" in name:
        return "process_cpu"
    if "alloc_" in name or "inuse_" in name or name in {"space", "objects"}:
        return "memory"
    if "mutex_" in name:
        return "mutex"
    if "block_" in name:
        return "block"
    return "goroutines" if "goroutines" in name else ""


def _display_names(config: bytes) -> Mapping[str, str]:
    if not config:
        return _DISPLAY_NAMES
    if len(config) > CONFIG_BYTES_MAX:
        raise Refused(MALFORMED, f"sample_type_config has {len(config)} bytes, the limit is {CONFIG_BYTES_MAX}")
    try:
        given = json.loads(config)
    except (ValueError, RecursionError) as error:
        raise Refused(MALFORMED, f"sample_type_config is not JSON: {error}") from error
    if not isinstance(given, dict) or not all(isinstance(one, dict) for one in given.values()):
        raise Refused(MALFORMED, "sample_type_config is not an object of objects")
    return {name: str(one.get("display-name") or name) for name, one in given.items()}


def _with_file_in_name(spy: str) -> Callable[[Profile], Profile]:
    """Return a repair that prepends the file to names, for interpreters' profilers that omit the module."""

    def repair_profile(profile: Profile) -> Profile:
        if spy not in _FILENAME_SPIES:
            return profile
        strings = list(profile.strings)
        known: dict[bytes, int] = {}
        names = profile.functions.names.copy()
        left = NAME_BYTES_MAX
        functions = zip(names.tolist(), profile.functions.filenames.tolist(), strict=True)
        for position, (name, filename) in enumerate(functions):
            if not (0 <= name < len(profile.strings) and 0 <= filename < len(profile.strings)):
                continue  # the validation reports it with its position
            file = profile.strings[filename]
            if not file or (spy == "pyspy" and file.startswith(b"/")):
                continue
            left -= len(file) + 1 + len(profile.strings[name])
            if left < 0:
                raise Refused(MALFORMED, f"functions with their files are more than {NAME_BYTES_MAX} bytes of names")
            text = file + b" " + profile.strings[name]
            names[position] = known.setdefault(text, len(strings))
            if known[text] == len(strings):
                strings.append(text)
        return replace(profile, strings=strings, functions=replace(profile.functions, names=names))

    return repair_profile


def _with_function_ids(spy: str, names: Mapping[str, str]) -> Callable[[Profile], Profile]:
    """Return a repair for the .NET profiler: no function ids, one function per location, ``-`` in sample types."""

    def repair_profile(profile: Profile) -> Profile:
        if spy != _DOTNET_SPY and not (spy == "unknown" and "inuse-space" in names):
            return profile
        return _with_underscores(_with_ids_of_locations(profile))

    return repair_profile


def _with_ids_of_locations(profile: Profile) -> Profile:
    functions, locations = profile.functions, profile.locations
    one_each = len(functions) == len(locations) and bool((np.diff(locations.line_starts) == 1).all())
    if not len(functions) or (functions.ids != 0).any() or not one_each:
        return profile
    ids = locations.ids.copy()
    return replace(
        profile, functions=replace(functions, ids=ids), locations=replace(locations, line_function_ids=ids.copy())
    )


def _with_underscores(profile: Profile) -> Profile:
    strings = list(profile.strings)
    types: list[tuple[int, int]] = []
    for kind, unit in profile.sample_types:
        text = _string(profile, kind).encode()
        if b"-" in text:
            strings.append(text.replace(b"-", b"_"))
            types.append((len(strings) - 1, unit))
        else:
            types.append((kind, unit))
    return replace(profile, strings=strings, sample_types=types)


def _in_this_century(from_ns: int) -> Callable[[Profile], Profile]:
    def repair_profile(profile: Profile) -> Profile:
        return replace(profile, time_ns=from_ns) if 0 < profile.time_ns < _YEAR_NS else profile

    return repair_profile


def _string(profile: Profile, ref: int) -> str:
    return profile.strings[ref].decode("utf-8", "replace") if 0 <= ref < len(profile.strings) else ""
