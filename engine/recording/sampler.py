"""Sample the running program from a separate thread, window by window.

Every few milliseconds the sampler reads the stack of each thread. The time since the previous sample counts as wall
time of that stack, the thread's CPU time since then as CPU time. Live memory is traced by tracemalloc: allocations not
freed by the end of a window. Tracing slows a program down two to five times, so it starts after the imports of the
program. Stacks are named and encoded after the end of the program, so the recorder does not appear in the profiles.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
import tracemalloc
from collections import Counter
from dataclasses import dataclass, field
from operator import itemgetter

from engine.recording.stacks import Stack, stack_of

INTERVAL_SECONDS = 0.005
"""Sampling interval: 50 samples in a window of 250 ms, at a cost of about one percent."""
MEMORY_FRAMES_MAX = 10
"""Frames that tracemalloc keeps per allocation, from the leaf; each additional frame costs time and memory."""
MEMORY_AFTER_SECONDS = 1.0
"""Delay before tracing starts; imports of large libraries would leave hundreds of thousands of live objects."""
MEMORY_PAUSE_SECONDS_MAX = 0.1
"""If reading the live allocations pauses the program longer than this, tracing is reset."""
THREAD_START_SECONDS_MAX = 10.0


Allocation = tuple[int, tuple[tuple[str, int], ...]]
"""Size in bytes and (file, line) of the frames, leaf first."""


@dataclass(slots=True)
class Window:
    """Samples from ``time_ns`` (unix nanoseconds) for ``duration_ns``.

    ``cpu`` and ``wall`` map stacks to nanoseconds, ``looks`` counts the samples of a stack on a CPU, ``memory`` counts
    live allocations.
    """

    time_ns: int
    duration_ns: int = 0
    cpu: Counter[Stack] = field(default_factory=Counter)
    looks: Counter[Stack] = field(default_factory=Counter)
    wall: Counter[Stack] = field(default_factory=Counter)
    memory: Counter[Allocation] = field(default_factory=Counter)


class Sampler:
    """Samples from ``start`` to ``stop``; ``windows`` are complete after ``stop``."""

    def __init__(self, window_seconds: float, *, with_memory: bool = True) -> None:
        self.windows: list[Window] = []
        self._window_ns = int(window_seconds * 1e9)
        self._with_memory = with_memory
        self._over = threading.Event()
        self._running = threading.Event()
        self._thread = threading.Thread(target=self._run, name="profile-sampler", daemon=True)
        self._cpu_ns: dict[int, int] = {}
        self._allocations: dict[Allocation, Allocation] = {}

    def start(self) -> None:
        """Start sampling all threads except the sampler's own."""
        self._thread.start()
        self._running.wait(THREAD_START_SECONDS_MAX)

    def stop(self) -> None:
        """Record the last window and stop."""
        self._over.set()
        self._thread.join()
        tracemalloc.stop()

    def _run(self) -> None:
        self._running.set()
        trace_from_ns = time.monotonic_ns() + int(MEMORY_AFTER_SECONDS * 1e9)
        while not self._over.is_set():
            if self._with_memory and not tracemalloc.is_tracing() and time.monotonic_ns() >= trace_from_ns:
                tracemalloc.start(MEMORY_FRAMES_MAX)
            self.windows.append(self._record_window())

    def _record_window(self) -> Window:
        window = Window(time_ns=time.time_ns())
        started = looked = time.monotonic_ns()
        while looked - started < self._window_ns and not self._over.wait(INTERVAL_SECONDS):
            now = time.monotonic_ns()
            self._look(window, now - looked)
            looked = now
        if tracemalloc.is_tracing():
            window.memory = self._live_allocations()
        window.duration_ns = time.monotonic_ns() - started
        return window

    def _look(self, window: Window, elapsed_ns: int) -> None:
        native_ids = {thread.ident: thread.native_id for thread in threading.enumerate()}
        for ident, frame in sys._current_frames().items():
            native_id = native_ids.get(ident)
            if native_id is None or ident == self._thread.ident:
                continue
            if stack := stack_of(frame):
                window.wall[stack] += elapsed_ns
                self._count_cpu(window, stack, native_id)

    def _count_cpu(self, window: Window, stack: Stack, native_id: int) -> None:
        total = thread_cpu_ns(native_id)
        spent = total - self._cpu_ns.get(native_id, total)
        self._cpu_ns[native_id] = total
        if spent > 0:
            window.cpu[stack] += spent
            window.looks[stack] += 1

    def _live_allocations(self) -> Counter[Allocation]:
        """Return the number of live allocations by site and size.

        Three consecutive C functions do the work, so that no other thread runs in between.
        """
        started = time.monotonic()
        was_collecting = gc.isenabled()
        gc.disable()  # A collection would traverse the many short-lived tuples created here.
        try:
            # The public API creates two Python objects per allocation, ten times the cost of these plain tuples
            # (domain, size, frames from the leaf, number of frames).
            traces = getattr(tracemalloc.take_snapshot().traces, "_traces")  # noqa: B009
            counts = Counter(map(itemgetter(1, 2), traces))
            del traces
            # Windows share their keys to save memory.
            found = Counter({self._allocations.setdefault(one, one): count for one, count in counts.items()})
        finally:
            if was_collecting:
                gc.enable()
        if time.monotonic() - started > MEMORY_PAUSE_SECONDS_MAX:
            tracemalloc.clear_traces()
        return found


def thread_cpu_ns(native_id: int) -> int:
    """Return the CPU time of a thread of this process, or of the process on systems without thread clocks."""
    # The id of a thread's CPU clock on Linux; a thread that has just ended has none, which raises an error.
    clock = (~native_id << 3) | 6
    if sys.platform == "linux":
        try:
            return time.clock_gettime_ns(clock)
        except OSError:
            return 0
    return time.process_time_ns()
