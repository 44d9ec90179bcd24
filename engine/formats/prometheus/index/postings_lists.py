"""Encoding of postings lists in batches.

Selects the compiled implementation if it is built, or pure Python with ``LITHIFY_PURE=1``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.kernels import load_kernel

if TYPE_CHECKING:
    from engine.formats.prometheus.index._postings_lists_py import format_lists, grouped_ids
else:
    format_lists, grouped_ids = load_kernel(
        "engine.formats.prometheus.index._postings_lists", "format_lists", "grouped_ids"
    )

__all__ = ["format_lists", "grouped_ids"]
