"""A priority queue that returns the item with the smallest (first, second, name) key first.

``push(first, second, name, item)`` adds an item. ``pop()`` removes and returns the first item, ``peek()`` returns its
key; both raise IndexError on an empty queue. ``first`` and ``second`` are signed 64-bit integers; names are compared by
code point if both are equal. ``len()`` counts the items. Cost: ``push`` and ``pop`` take O(log n) comparisons,
``peek`` O(1).

``LITHIFY_PURE=1`` selects the pure Python implementation, which type checkers use too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.kernels import load_kernel

if TYPE_CHECKING:
    from engine.schedule._priority_queue_py import PriorityQueue
else:
    (PriorityQueue,) = load_kernel("engine.schedule._priority_queue", "PriorityQueue")

__all__ = ["PriorityQueue"]
