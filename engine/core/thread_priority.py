"""Low scheduling priority for background work."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
LOW_PRIORITY_NICE = 10
"""Not 19: a starved thread that holds the GIL would stop the threads that renew the node's leases."""


def run_at_low_priority(work: Callable[[], T]) -> T:
    """Call ``work`` in a new thread with low priority; return its result or raise its exception.

    A thread cannot raise its own priority again, so the thread is not reused. Only Linux has priorities of threads;
    other systems run the work at normal priority.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="low-priority") as pool:
        return pool.submit(_call_at_low_priority, work).result()


def _call_at_low_priority(work: Callable[[], T]) -> T:
    lower_thread_priority()
    return work()


def lower_thread_priority() -> None:
    """Lower the priority of the calling thread until it ends."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, max(LOW_PRIORITY_NICE, os.getpriority(os.PRIO_PROCESS, thread)))
