"""Display of an uploaded pprof file: parsed in memory, with limits, and never stored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.http import HttpRequest

from engine.core.errors import BadObject
from engine.formats.pprof.pprof import parse_profile, uncompressed
from engine.query.admission import Caller
from engine.query.flame.pprof_stacks import default_sample_type, profile_tree, sample_types
from engine.query.flame.tree import FlameTree
from webadmin.base.compressed_bodies import BodyTooLarge, read_body
from webadmin.base.connect import ConnectError
from webadmin.query.questions import query_engine, query_limits
from webadmin.query.viewers.presence import has_left

FILE_BYTES_MAX = 16 << 20
"""Maximum bytes of a file as uploaded, usually compressed."""
UNPACKED_BYTES_MAX = 32 << 20
MEMORY_PER_BYTE = 20
"""Estimated bytes of columns and tree per byte of a file."""
ENTRIES_MAX = 1_000_000


def opened_file(request: HttpRequest) -> tuple[FlameTree, dict[str, Any]]:
    """Return a tree of the pprof file in the body, and a description of the file. Raises ConnectError.

    ``sample`` in the query string is the position of the sample type.
    """
    try:
        data = read_body(request, gzipped=False, limit=FILE_BYTES_MAX)
    except BodyTooLarge as error:
        message = f"the file has more than {FILE_BYTES_MAX >> 20} MiB"
        raise ConnectError("invalid_argument", message, reason="file_too_large") from error
    try:
        unpacked = uncompressed(data, size_max=UNPACKED_BYTES_MAX)
        with _room(request, len(unpacked)):
            return _read(unpacked, request.GET.get("sample", ""))
    except BadObject as error:
        message = f"this is no pprof file that can be read: {error}"
        raise ConnectError("invalid_argument", message, reason="bad_file") from error


@contextmanager
def _room(request: HttpRequest, size: int) -> Iterator[None]:
    """Reserve memory for parsing a file, within the memory limit of queries."""
    with Caller(query_engine().memory, query_limits().seconds, lambda: has_left(request)) as caller:
        with caller.turn():
            caller.hold(max(size, 1) * MEMORY_PER_BYTE)
        yield


def _read(data: bytes, wanted: str) -> tuple[FlameTree, dict[str, Any]]:
    profile = parse_profile(data, size_max=UNPACKED_BYTES_MAX, entries_max=ENTRIES_MAX)
    types = sample_types(profile)
    position = int(wanted) if wanted.isascii() and wanted.isdigit() and len(wanted) < 4 else -1
    if not 0 <= position < len(types):
        position = default_sample_type(profile)
    values = {
        "sample_types": [{"type": kind, "unit": unit} for kind, unit in types],
        "sample": position,
        "time_ms": max(0, profile.time_ns // 1_000_000),
        "duration_ms": max(0, profile.duration_ns // 1_000_000),
        "samples": len(profile.samples),
    }
    return profile_tree(profile, position), values
