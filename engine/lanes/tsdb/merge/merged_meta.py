"""What the result of a merge says of itself, but for its statistics: who merges writes it, who commits expects it.

One block by itself is only cleaned up: it starts over at level 1, as its own source, unless a part is taken of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.formats.prometheus.meta import BlockMeta, BlockStats, Compaction, ParentBlock

HINT_OF_ALL = "from-out-of-order"
"""A result has this hint if all sources have it, any other if one has it."""


def merged_meta(ulid: str, sources: Sequence[BlockMeta], *, is_part: bool = False) -> BlockMeta:
    """Return what the result says of itself; ``is_part`` if it has only one part of the sources' series."""
    is_cleaned = len(sources) == 1 and not is_part
    # A block that names no sources is its own.
    own = [source.compaction.sources or (source.ulid,) for source in sources]
    ancestors = {ulid} if is_cleaned else {each for sources_of in own for each in sources_of}
    hints = [set(source.compaction.hints) for source in sources]
    kept = {hint for each in hints for hint in each if hint != HINT_OF_ALL or all(hint in other for other in hints)}
    return BlockMeta(
        ulid=ulid,
        min_time_ms=min(source.min_time_ms for source in sources),
        max_time_ms=max(source.max_time_ms for source in sources),
        stats=BlockStats(),
        compaction=Compaction(
            level=1 if is_cleaned else 1 + max(source.compaction.level for source in sources),
            sources=tuple(sorted(ancestors)),
            parents=tuple(ParentBlock(source.ulid, source.min_time_ms, source.max_time_ms) for source in sources),
            hints=tuple(sorted(kept)),
        ),
    )
