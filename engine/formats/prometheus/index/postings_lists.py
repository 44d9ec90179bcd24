"""Encoding of postings lists in batches.

Selects the compiled implementation if it is built, or pure Python with ``LITHIFY_PURE=1``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

IMPLEMENTATION = "python"

if TYPE_CHECKING or os.environ.get("LITHIFY_PURE") == "1":
    from engine.formats.prometheus.index._postings_lists_py import format_lists, grouped_ids
else:
    try:
        from engine.formats.prometheus.index._postings_lists import format_lists, grouped_ids

        IMPLEMENTATION = "compiled"
    except ImportError:
        from engine.formats.prometheus.index._postings_lists_py import format_lists, grouped_ids

__all__ = ["IMPLEMENTATION", "format_lists", "grouped_ids"]
