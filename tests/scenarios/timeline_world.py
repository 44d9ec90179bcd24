"""The world in which the rows of the timeline sheet are played: segments in, chunks and tasks out.

Times are days: ``1`` is 2024-02-01, ``5.5`` noon of the 5th; an interval is ``1-30``, a lone day ``5``. Sizes are MB.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

from engine.lanes.tables.plan.colours import red_and_black
from engine.lanes.tables.plan.columns import FOREVER_END_MS, FOREVER_START_MS
from engine.lanes.tables.plan.granularity import DAY_MS, HOUR_MS
from engine.lanes.tables.plan.model import Chunk, PlannedTask, Segment, TimelinePlan
from engine.lanes.tables.plan.plan import plan_timeline
from engine.lanes.tables.plan.policy import MB, Align, Spanning, TimelinePolicy
from engine.schedule.errors import PolicyRefused, SnapshotRefused

FIRST_MS = 1_706_745_600_000
"""2024-02-01."""
NOW_DAY = 61
"""2024-04-01."""
IN_MB = ("segment_bytes_max", "small_cost", "cost_max", "open_cost")
ENUMS = {"spanning": Spanning, "align": Align}


def day_ms(day: str) -> int:
    """Return the instant of a day like ``5`` or ``5.5``; ``-`` and ``+`` are the ends of eternity."""
    if day in ("-", "+"):
        return FOREVER_START_MS if day == "-" else FOREVER_END_MS
    return FIRST_MS + int((Fraction(day) - 1) * DAY_MS)


def interval(text: str) -> tuple[int, int]:
    """Return the instants of ``5``, ``1-30``, ``5.5-6``, ``-..+``."""
    first, found, last = text.partition(".." if ".." in text else "-")
    return day_ms(first), day_ms(last if found else str(Fraction(first) + 1))


def days(start_ms: int, end_ms: int) -> str:
    """Return an interval of whole days as ``d01`` or ``d01-d05``, both inclusive; others in hours from the first."""
    first, last = (Fraction(time_ms - FIRST_MS, DAY_MS) for time_ms in (start_ms, end_ms))
    if first.denominator > 1 or last.denominator > 1:
        return f"h{float(first * 24):g}-h{float(last * 24):g}"
    return f"d{int(first) + 1:02d}" if last - first == 1 else f"d{int(first) + 1:02d}-d{int(last):02d}"


def mb(count: int) -> str:
    return f"{count / MB:.1f}".removesuffix(".0")


class TimelineWorld:
    """Segments, a policy, and what the last tasks left."""

    def __init__(self) -> None:
        self.segments: dict[int, Segment] = {}
        self.policy = TimelinePolicy()
        self.now_day = NOW_DAY
        self.outputs: dict[int, frozenset[int]] = {}

    def run(self, command: str) -> str:
        """Do what a line says and return what is to be seen."""
        name, *words = command.split()
        try:
            return str(getattr(self, f"_{name}")(*words))
        except (SnapshotRefused, PolicyRefused) as error:
            return f"{error.code}: {error}"

    def plan(self) -> TimelinePlan:
        return plan_timeline(
            "table", tuple(self.segments.values()), self.policy, now_ms=self.now_ms, outputs=self.outputs
        )

    @property
    def now_ms(self) -> int:
        return day_ms(str(self.now_day))

    def _now(self, day: str) -> str:
        self.now_day = int(day)
        return ""

    def _set(self, *words: str) -> str:
        for word in words:
            name, value = word.split("=")
            if name in ("period", "timezone", "origin"):
                told = {"origin_ms": day_ms(value)} if name == "origin" else {name: value}
                granularity = replace(self.policy.granularity, **told)  # type: ignore[arg-type]
                self.policy = replace(self.policy, granularity=granularity)
            elif name in ENUMS:
                self.policy = replace(self.policy, **{name: ENUMS[name](value)})
            elif name == "hot":
                self.policy = replace(self.policy, hot_ms=int(value) * DAY_MS)
            elif name == "excluded":
                self.policy = replace(self.policy, excluded=((*interval(value), "an operator said never"),))
            elif name == "whole_files":
                self.policy = replace(self.policy, partial_visibility=False)
            else:
                number = int(value) * MB if name in IN_MB else int(value)
                self.policy = replace(self.policy, **{name: number})  # type: ignore[arg-type]
        return ""

    def _data(self, version: str, when: str, sizes: str, *told: str) -> str:
        """``data v1 1-30 2x300``: segments of one entry; ``?`` is an unknown size."""
        self._add(version, *interval(when), sizes, told)
        return ""

    def _hours(self, version: str, when: str, sizes: str) -> str:
        """``hours v1 1 24x5``: one segment for each hour from the beginning of the interval on."""
        start_ms, end_ms = interval(when)
        _, size = sizes.split("x")
        for hour in range((end_ms - start_ms) // HOUR_MS):
            self._add(version, start_ms + hour * HOUR_MS, start_ms + (hour + 1) * HOUR_MS, f"1x{size}", ())
        return ""

    def _tombstone(self, version: str, when: str) -> str:
        self._add(version, *interval(when), "1x0", ("is_tombstone=1",))
        return ""

    def _add(self, version: str, start_ms: int, end_ms: int, sizes: str, told: Iterable[str]) -> None:
        count, size = sizes.split("x")
        numbers = {name: int(value) for name, value in (word.split("=") for word in told)}
        entry = [one for one in self.segments.values() if (one.start_ms, one.version) == (start_ms, version)]
        first = numbers.pop("partition", len(entry))
        numbers["is_tombstone"] = bool(numbers.get("is_tombstone"))
        for number in range(int(count)):
            key = max(self.segments, default=0) + 1
            self.segments[key] = Segment(
                key=key,
                start_ms=start_ms,
                end_ms=end_ms,
                version=version,
                partition=first + number,
                size_bytes=None if size == "?" else int(Fraction(size) * MB),
                **numbers,  # type: ignore[arg-type]
            )

    def _drop(self, *keys: str) -> str:
        for key in keys:
            del self.segments[int(key)]
        return ""

    def _chunk(self, when: str) -> str:
        """Everything there is to say of one chunk."""
        start_ms, _ = interval(when)
        return next(map(_told, (one for one in self.plan().chunks if one.start_ms <= start_ms < one.end_ms)), "none")

    def _chunks(self) -> str:
        """What is to be done with the chunks, those in a row with equal actions together."""
        found: list[tuple[int, int, str]] = []
        for chunk in self.plan().chunks:
            if found and found[-1][1:] == (chunk.start_ms, chunk.action):
                found[-1] = (found[-1][0], chunk.end_ms, chunk.action)
            else:
                found.append((chunk.start_ms, chunk.end_ms, chunk.action))
        return ", ".join(f"{days(start_ms, end_ms)} {action}" for start_ms, end_ms, action in found) or "none"

    def _tasks(self) -> str:
        return " | ".join(self._task(task, self.plan().tasks) for task in self.plan().tasks) or "none"

    def _task(self, task: PlannedTask, tasks: Iterable[PlannedTask]) -> str:
        names = {one.name: f"T{number}" for number, one in enumerate(tasks, 1)}
        told = f"{names[task.name]} {days(task.start_ms, task.end_ms)} {mb(task.cost)} p {task.priority / 1e6:.3f}"
        told += f" colour {task.colour}" if task.colour else ""
        told += f" after {'+'.join(sorted(names[name] for name in task.deps))}" if task.deps else ""
        return told + (" over-limit" if task.is_over_limit else "")

    def _order(self) -> str:
        """The tasks by urgency."""
        tasks = sorted(self.plan().tasks, key=lambda task: (-task.priority, -task.end_ms))
        return " ".join(days(task.start_ms, task.end_ms) for task in tasks)

    def _basic(self) -> str:
        """The tasks as the notes colour them."""
        tasks = self.plan().tasks
        names = {task.name: f"T{number}" for number, task in enumerate(tasks, 1)}
        pairs = zip(tasks, red_and_black(tasks), strict=True)
        return ", ".join(f"{names[task.name]} {f'after {names[name]}' if name else 'red'}" for task, name in pairs)

    def _why(self, when: str) -> str:
        start_ms, _ = interval(when)
        return next(one.reason for one in self.plan().chunks if one.start_ms <= start_ms < one.end_ms)

    def _work(self, which: str = "all", made: str = "") -> str:
        """Do all tasks, or ``1-3``: only their chunks in these days; each leaves its ``out`` objects, or ``made``."""
        within = (FOREVER_START_MS, FOREVER_END_MS) if which == "all" else interval(which)
        plan = self.plan()
        chunks = [chunk for task in plan.tasks for chunk in task.chunks]
        for chunk in chunks:
            if within[0] <= chunk.start_ms < within[1]:
                self._rewrite(chunk, made)
        return ""

    def _rewrite(self, chunk: Chunk, made: str) -> None:
        count = int(made) if made else chunk.out
        version = "w" + str(max((len(one.version) for one in self.segments.values()), default=0)).zfill(3)
        version = max(version, *(one.version for one in self.segments.values())) + "w"
        before = set(self.segments)
        for number in range(count):
            size = chunk.bytes * (number + 1) // count - chunk.bytes * number // count
            key = max(self.segments) + 1
            self.segments[key] = Segment(
                key=key,
                start_ms=chunk.start_ms,
                end_ms=chunk.end_ms,
                version=version,
                partition=number,
                core_partitions=count,
                size_bytes=size,
            )
        self.outputs[chunk.start_ms] = frozenset(self.segments) - before


def _told(chunk: Chunk) -> str:
    told = f"{days(chunk.start_ms, chunk.end_ms)} {chunk.action}"
    if chunk.action in ("skipped", "empty"):
        return told
    told += f" n {chunk.segments} fit {chunk.fit} out {chunk.out} bytes {mb(chunk.bytes)} cost {mb(chunk.cost)}"
    terms = {"F": chunk.fragmentation, "O": chunk.oversize, "A": chunk.alignment, "R": chunk.recency}
    told += "".join(f" {name} {value:.3f}" for name, value in terms.items() if value)
    marks = [name for name, has in (("prior", chunk.has_overlap_prior), ("later", chunk.has_overlap_later)) if has]
    told += f" overlaps {'+'.join(marks)}" if marks else ""
    return told + (f" p {chunk.priority / 1e6:.3f}" if chunk.priority else "")


def rows_of(text: str) -> list[str]:
    """Return the rows that a heading names."""
    return re.findall(r"\b[XE]\d+\b", text)
