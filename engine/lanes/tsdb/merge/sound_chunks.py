"""Fast check of many float chunks, for verification.

Selects one of two implementations: the pure Python one is the reference, the compiled one is used if it is built,
unless ``LITHIFY_PURE=1``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

IMPLEMENTATION = "python"

if TYPE_CHECKING or os.environ.get("LITHIFY_PURE") == "1":
    from engine.lanes.tsdb.merge._sound_chunks_py import sound_float_chunks
else:
    try:
        from engine.lanes.tsdb.merge._sound_chunks import sound_float_chunks

        IMPLEMENTATION = "compiled"
    except ImportError:
        from engine.lanes.tsdb.merge._sound_chunks_py import sound_float_chunks

__all__ = ["IMPLEMENTATION", "sound_float_chunks"]
