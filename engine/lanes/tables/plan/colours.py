"""Colour tasks: tasks that share a segment have different colours and must not run at once; one waits for the other."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace

import xxhash

from engine.lanes.tables.plan.candidates import Run
from engine.lanes.tables.plan.model import Chunk, PlannedTask, QueuedTask


def shared_keys(chunks: Iterable[Chunk]) -> set[int]:
    """Return the segments, tombstones included, that chunks may share with another task."""
    found: set[int] = set()
    for chunk in chunks:
        if chunk.shared:
            found.update(chunk.shared)
        if chunk.shared_tombstones:
            found.update(chunk.shared_tombstones)
    return found


def task_name(source: str, chunks: Iterable[Chunk], now_ms: int, reserved: Container[str] = ()) -> str:
    """Return a name that is equal for equal chunks with equal contents at one time: 16 hexadecimal digits.

    At another time the name differs, and it is none of ``reserved``: a task that waits for earlier tasks must not wait
    for new ones with the same chunks.
    """
    text = "".join([f"{chunk.start_ms} {chunk.end_ms} {chunk.digest};" for chunk in chunks])
    name = xxhash.xxh64_hexdigest(f"{source};{now_ms};{text}".encode())
    while name in reserved:
        name = xxhash.xxh64_hexdigest(name.encode())
    return name


def make_tasks(source: str, runs: Iterable[Run], *, now_ms: int, taken: Iterable[QueuedTask] = ()) -> list[PlannedTask]:
    """Return the coloured tasks of runs in time order; waiting and running tasks (``taken``) come before them.

    A task's colour is the smallest that no earlier conflicting task has and that is above those of all taken ones. A
    task depends on every conflicting task with a smaller colour, so dependencies have no cycle.
    """
    held_tasks = list(taken)
    reserved = {name for before in held_tasks for name in (before.name, *before.deps)}
    tasks = [
        PlannedTask(
            name=task_name(source, run.chunks, now_ms, reserved),
            source=source,
            chunks=tuple(run.chunks),
            cost=run.cost,
            priority=max([chunk.priority for chunk in run.chunks]),
            is_over_limit=run.is_over_limit,
        )
        for run in runs
    ]
    sharing = [(place, keys) for place, task in enumerate(tasks) if (keys := shared_keys(task.chunks))]
    if not sharing:
        return tasks
    held: dict[int, list[QueuedTask]] = {}
    for before in held_tasks:
        if before.source == source:
            for key in before.shared:
                held.setdefault(key, []).append(before)
    conflicts = _conflicts(sharing)
    colours: dict[int, int] = {}
    for place, keys in sharing:
        taken_before = {before.name: before for key in keys for before in held.get(key, ())}
        used = {colours[other] for other in conflicts[place] if other in colours}
        colour = max((before.colour for before in taken_before.values()), default=-1) + 1
        while colour in used:
            colour += 1
        colours[place] = colour
        tasks[place] = replace(tasks[place], colour=colour, deps=tuple(sorted(taken_before)))
    for place, _ in sharing:
        own = colours[place]
        deps = {tasks[other].name for other in conflicts[place] if colours[other] < own}
        if deps:
            tasks[place] = replace(tasks[place], deps=tuple(sorted(deps.union(tasks[place].deps))))
    return tasks


def _conflicts(sharing: Sequence[tuple[int, set[int]]]) -> dict[int, set[int]]:
    holders: dict[int, list[int]] = {}
    for place, keys in sharing:
        for key in keys:
            holders.setdefault(key, []).append(place)
    found: dict[int, set[int]] = {place: set() for place, _ in sharing}
    for places in holders.values():
        if len(places) > 1:
            for place in places:
                found[place].update(places)
    for place, others in found.items():
        others.discard(place)
    return found


def red_and_black(tasks: Sequence[PlannedTask]) -> list[str]:
    """Return for each task, in time order, its dependency in the two-colour scheme, "" for none.

    In that scheme a task waits for the latest earlier task that shares a segment, so chains run one by one; with
    colours every other task of a chain runs at once. See ``docs/reference/timeline-compaction.md``.
    """
    found: list[str] = []
    last: dict[int, int] = {}
    for place, task in enumerate(tasks):
        keys = shared_keys(task.chunks)
        after = max((last[key] for key in keys if key in last), default=-1)
        found.append(tasks[after].name if after >= 0 else "")
        last.update(dict.fromkeys(keys, place))
    return found
