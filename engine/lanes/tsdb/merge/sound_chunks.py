"""The check of many float chunks at once, for those who read a block only to know whether it is sound.

The door to two implementations: the plain twin defines it, the compiled one is used when it is built, unless
``LITHIFY_PURE=1``.
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
