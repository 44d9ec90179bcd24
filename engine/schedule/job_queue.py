"""Jobs in the order of the ``reference`` policy: level, then status, failures, end of the lease, and name (bytewise).

``put(name, level=, status=, failures=, expires_ms=)`` adds a job or replaces the one of that name; ``delete(name)``
says whether it was there; ``peek(level=None)`` and ``pop(level=None)`` return the name that comes first, at one level
or of all; iterating gives all names in order and changes nothing; ``copy()`` is independent; ``check()`` walks the
invariants. Cost: put, delete and pop take O(log n) comparisons of integers, peek O(levels); the names are compared only
when all else is equal. Numbers are signed 64 bit, levels below ``LEVELS_MAX``.

``LITHIFY_PURE=1`` chooses the plain twin, which is also what type checkers see.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

LEVELS_MAX = 64

if TYPE_CHECKING or os.environ.get("LITHIFY_PURE") == "1":
    from engine.schedule._job_queue_py import JobQueue

    IMPLEMENTATION = "python"
else:
    try:
        from engine.schedule._job_queue import JobQueue

        IMPLEMENTATION = "compiled"
    except ImportError:
        from engine.schedule._job_queue_py import JobQueue

        IMPLEMENTATION = "python"

__all__ = ["IMPLEMENTATION", "LEVELS_MAX", "JobQueue"]
