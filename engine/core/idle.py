"""Work that gives way to whatever else a machine has to do."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
IDLE_NICE = 10
"""Not 19: whoever holds the interpreter's lock has to be given time, or the leases of its node would run out."""


def run_idle(work: Callable[[], T]) -> T:
    """Do this in a thread of its own that has the processor when others leave it; return or raise what it does.

    A thread cannot raise its priority again, so it ends with the work. Only Linux has priorities of threads: elsewhere
    the work has the priority of all.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="idle") as pool:
        return pool.submit(_lowered, work).result()


def _lowered(work: Callable[[], T]) -> T:
    lower_this_thread()
    return work()


def lower_this_thread() -> None:
    """Lower the calling thread, for as long as it lives."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, max(IDLE_NICE, os.getpriority(os.PRIO_PROCESS, thread)))
