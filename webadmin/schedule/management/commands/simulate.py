"""``manage.py simulate``: run simulated histories with faults, or estimate the capacity for a load."""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from engine.simulation.histories import HistoryName, Report, run_histories
from engine.simulation.plot import backlog_plot
from engine.simulation.scenario import Fault, Fleet, Sabotage, Workload
from engine.simulation.sizing import Sizing, size_fleet

PROGRESS_EVERY = 500
MORE_THAN_NOTHING = (
    *("histories", "processes", "slots", "seconds", "workers"),
    *("rate", "segment_bytes", "tenants", "tenants_per_segment", "shards", "hours"),
)
NOT_NEGATIVE = ("burst", "burst_every", "fixed_ms", "ms_per_mib")
PROCESSES_FROM = 50
"""Fewer histories finish before further processes have started."""


class Command(BaseCommand):
    help = (
        "Profile faults: run histories with crashes, losses and repeats, check every invariant after every step; exit "
        "code 1 if one is broken. Profile sizing: how many workers a load needs, and how the backlog goes."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--profile", choices=["faults", "sizing"], default="faults")
        parser.add_argument("--seed", type=int, default=0, help="the history, or the first of several")
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        faults = parser.add_argument_group("faults")
        faults.add_argument("--histories", type=int, default=1, help="how many, from the seed on")
        faults.add_argument("--processes", type=int, help="that share the histories (default: one per core)")
        faults.add_argument("--sabotage", type=Sabotage, choices=list(Sabotage), default=Sabotage.NONE)
        faults.add_argument("--without", type=_faults, default=frozenset(), help="faults left out, with commas")
        faults.add_argument("--slots", type=int, help="jobs that a worker runs at once")
        faults.add_argument("--seconds", type=float, help="virtual time in which things go wrong")
        faults.add_argument("--workers", type=int, help="number of workers (sizing: instead of as many as it needs)")
        sizing = parser.add_argument_group("sizing")
        sizing.add_argument("--rate", type=float, default=10.0, help="segments per second")
        sizing.add_argument("--segment-bytes", type=int, default=1 << 20, help="mean size of a segment")
        sizing.add_argument("--tenants", type=int, default=1)
        sizing.add_argument("--tenants-per-segment", type=int, default=1)
        sizing.add_argument("--shards", type=int, default=1)
        sizing.add_argument("--burst", type=int, default=0, help="segments that arrive at once besides")
        sizing.add_argument("--burst-every", type=float, default=0.0, help="seconds between bursts (0: one burst)")
        sizing.add_argument("--fixed-ms", type=float, default=500.0, help="what a job costs whatever its size")
        sizing.add_argument("--ms-per-mib", type=float, default=50.0, help="what a job costs per MiB of its sources")
        sizing.add_argument("--hours", type=float, default=1.0, help="virtual time")
        sizing.add_argument("--plot", type=Path, help="write the backlog curve to this SVG file")

    def handle(self, *args: Any, profile: str, **options: Any) -> None:
        _check(options)
        if profile == "sizing":
            self._size(options)
        else:
            self._run_histories(options)

    def _run_histories(self, options: dict[str, Any]) -> None:
        first, count = options["seed"], options["histories"]
        names = (
            HistoryName(
                seed=seed,
                sabotage=options["sabotage"],
                without=options["without"],
                workers=options["workers"],
                slots=options["slots"],
                seconds=options["seconds"],
            )
            for seed in range(first, first + count)
        )
        processes = options["processes"] or (os.cpu_count() or 1 if count >= PROCESSES_FROM else 1)
        report = run_histories(names, progress=self._progress, processes=processes)
        self.stdout.write(json.dumps(report.to_json()) if options["json"] else _in_words(report))
        for failure in report.failures:
            self.stderr.write(f"{failure.message}\nreplay it with: {failure.name.command_line()}")
        if report.failures:
            sys.exit(1)

    def _progress(self, report: Report) -> None:
        if report.histories % PROGRESS_EVERY == 0:
            self.stderr.write(f"{report.histories} histories, {report.events} events, all invariants held")

    def _size(self, options: dict[str, Any]) -> None:
        load = Workload(
            segments_per_s=options["rate"],
            segment_bytes=options["segment_bytes"],
            tenants=options["tenants"],
            tenants_per_segment=options["tenants_per_segment"],
            shards=options["shards"],
            burst_segments=options["burst"],
            burst_every_s=options["burst_every"],
        )
        prices = Fleet(
            workers=options["workers"] or 0,
            slots=options["slots"] or 1,
            fixed_ms=options["fixed_ms"],
            ms_per_mib=options["ms_per_mib"],
        )
        if not options["json"]:
            self.stderr.write(f"simulating {options['hours']:g} h twice: for the demand, then with the fleet")
        sizing = size_fleet(load, prices, hours=options["hours"], seed=options["seed"])
        if options["plot"] is not None:
            try:
                options["plot"].write_text(backlog_plot(sizing.samples))
            except OSError as error:
                raise CommandError(f"--plot {options['plot']}: {error.strerror}") from error
        self.stdout.write(json.dumps(sizing.to_json()) if options["json"] else _sizing_text(sizing))


def _faults(text: str) -> frozenset[Fault]:
    if unknown := sorted(set(text.split(",")) - set(Fault)):
        raise ArgumentTypeError(f"there is no fault {', '.join(unknown)}; there are {', '.join(sorted(Fault))}")
    return frozenset(Fault(word) for word in text.split(","))


def _check(options: dict[str, Any]) -> None:
    """Reject options that cannot be simulated, before the simulation."""
    for name in MORE_THAN_NOTHING:
        if options[name] is not None and options[name] <= 0:
            raise CommandError(f"--{name.replace('_', '-')} {options[name]:g}: it has to be more than 0")
    for name in NOT_NEGATIVE:
        if options[name] < 0:
            raise CommandError(f"--{name.replace('_', '-')} {options[name]:g}: it cannot be negative")
    if options["tenants_per_segment"] > options["tenants"]:
        raise CommandError(f"a segment cannot hold {options['tenants_per_segment']} of {options['tenants']} tenants")


def _in_words(report: Report) -> str:
    outcome = f"{len(report.failures)} broke an invariant" if report.failures else "all invariants held"
    return (
        f"{report.histories} histories: {report.segments} segments, {report.events} events, "
        f"{report.commands} commands, {report.runs} runs, {report.parked} jobs parked, "
        f"{report.stale} change sets prepared again: {outcome}"
    )


def _sizing_text(sizing: Sizing) -> str:
    rows = [
        f"demand            {sizing.demand_slots:.1f} slots busy on average",
        f"workers needed    {sizing.workers_needed}",
        f"simulated with    {sizing.workers} workers: {sizing.utilisation:.0%} busy, backlog {sizing.trend()}",
        "",
        f"{'minute':>8}{'queued blocks':>15}{'jobs':>8}{'busy slots':>12}{'first job waits':>18}",
    ]
    rows += [
        f"{s.at_s / 60:8.0f}{s.queued_blocks:15}{s.live_jobs:8}{s.busy_slots:12}{s.wait_s:16.0f} s"
        for s in sizing.table()
    ]
    return "\n".join(rows)
