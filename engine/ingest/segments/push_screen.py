"""Fast check of the bytes of pushed profiles that pass validation unchanged.

Without the compiled implementation every profile goes through the full validation, with the same result.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

IMPLEMENTATION = "python"


def _is_never_known(
    message: bytes,
    *,
    oldest_ns: int,
    newest_ns: int,
    samples_max: int,
    sample_labels_max: int,
    stack_frames_max: int,
    symbol_bytes_max: int,
) -> bool:
    """Return False: use the full validation."""
    return False


if TYPE_CHECKING or os.environ.get("LITHIFY_PURE") == "1":
    is_in_order = _is_never_known
else:
    try:
        from engine.ingest.segments._push_screen import is_in_order

        IMPLEMENTATION = "compiled"
    except ImportError:
        is_in_order = _is_never_known

__all__ = ["IMPLEMENTATION", "is_in_order"]
