"""Fast check of the bytes of pushed profiles that pass validation unchanged.

Without the compiled implementation every profile goes through the full validation, with the same result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.kernels import load_kernel

if TYPE_CHECKING:
    from engine.ingest.segments._push_screen_py import is_in_order
else:
    (is_in_order,) = load_kernel("engine.ingest.segments._push_screen", "is_in_order")

__all__ = ["is_in_order"]
