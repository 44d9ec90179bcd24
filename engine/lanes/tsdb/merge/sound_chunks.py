"""Fast check of many float chunks, for verification.

Selects one of two implementations: the pure Python one is the reference, the compiled one is used if it is built,
unless ``LITHIFY_PURE=1``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.kernels import load_kernel

if TYPE_CHECKING:
    from engine.lanes.tsdb.merge._sound_chunks_py import sound_float_chunks
else:
    (sound_float_chunks,) = load_kernel("engine.lanes.tsdb.merge._sound_chunks", "sound_float_chunks")

__all__ = ["sound_float_chunks"]
