"""A pprof file that somebody opens in the page: read in memory, within bounds, and forgotten with the answer."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from engine.profiles.errors import BadObject
from engine.profiles.flame.pprof_stacks import default_sample_type, profile_tree, sample_types
from engine.profiles.flame.tree import FlameTree
from engine.profiles.pprof import parse_profile
from webadmin.profiles.compressed_bodies import BodyTooLarge, read_body
from webadmin.profiles.connect import ConnectError

FILE_BYTES_MAX = 16 << 20
"""A file as it comes, usually packed."""
UNPACKED_BYTES_MAX = 64 << 20
ENTRIES_MAX = 1_000_000


def opened_file(request: HttpRequest) -> tuple[FlameTree, dict[str, Any]]:
    """Return a tree of the pprof file in the body, and what there is in the file. Raises ConnectError.

    ``sample`` in the query is the position of the sample type that is looked at.
    """
    try:
        data = read_body(request, gzipped=False, limit=FILE_BYTES_MAX)
    except BodyTooLarge as error:
        message = f"the file has more than {FILE_BYTES_MAX >> 20} MiB"
        raise ConnectError("invalid_argument", message, reason="file_too_large") from error
    try:
        profile = parse_profile(data, size_max=UNPACKED_BYTES_MAX, entries_max=ENTRIES_MAX)
        types = sample_types(profile)
        wanted = request.GET.get("sample", "")
        position = int(wanted) if wanted.isascii() and wanted.isdigit() and len(wanted) < 4 else -1
        if not 0 <= position < len(types):
            position = default_sample_type(profile)
        tree = profile_tree(profile, position)
    except BadObject as error:
        raise ConnectError(
            "invalid_argument", f"this is no pprof file that can be read: {error}", reason="bad_file"
        ) from error
    told = {
        "sample_types": [{"type": kind, "unit": unit} for kind, unit in types],
        "sample": position,
        "time_ms": max(0, profile.time_ns // 1_000_000),
        "duration_ms": max(0, profile.duration_ns // 1_000_000),
        "samples": len(profile.samples),
    }
    return tree, told
