"""Result type of benchmarks, and measurements that all of them use."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True)
class Figures:
    """Parameters and figures of a benchmark, with units in their names."""

    parameters: dict[str, object]
    figures: dict[str, float]


def machine() -> dict[str, object]:
    """Return a description of this machine."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def peak_rss_mb() -> float:
    """Return this process's peak resident set size, without that before its program was loaded."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU time that this process uses for one call of ``work``."""
    started = time.process_time()
    work()
    return time.process_time() - started


def process_seconds(pid: int) -> float:
    """Return the CPU time of a process, its children, and children that have exited and were waited for."""
    top = psutil.Process(pid)
    total = 0.0
    for process in [top, *top.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total
