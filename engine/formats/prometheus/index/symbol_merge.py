"""The symbols of several tables merged, some thousand at a time.

The door to two implementations: the plain twin defines them, the compiled one is used when it is built, unless
``LITHIFY_PURE=1``. A symbol costs about 5 us in the twin.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

IMPLEMENTATION = "python"

if TYPE_CHECKING or os.environ.get("LITHIFY_PURE") == "1":
    from engine.formats.prometheus.index._symbol_merge_py import merge_symbols
else:
    try:
        from engine.formats.prometheus.index._symbol_merge import merge_symbols

        IMPLEMENTATION = "compiled"
    except ImportError:
        from engine.formats.prometheus.index._symbol_merge_py import merge_symbols

__all__ = ["IMPLEMENTATION", "merge_symbols"]
