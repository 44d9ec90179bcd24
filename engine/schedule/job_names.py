"""Names of compaction jobs: a pure function of sources and place, so that equal plans have equal names."""

from __future__ import annotations

from collections.abc import Iterable

import xxhash


def job_name(source_ids: Iterable[str], *, tenant: str, shard: int, level: int) -> str:
    """Return ``<hash>-T<tenant>-S<shard>-L<level>``; the hash is XXH64 (seed 0) of the ids in order, in hex."""
    digest = xxhash.xxh64_intdigest("".join(source_ids).encode())
    return f"{digest:x}-T{tenant}-S{shard}-L{level}"
