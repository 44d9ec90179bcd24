"""Speed of the simulation: a fleet of 1,000 busy workers with every invariant checked after every step.

An event is an entry of the event queue: a segment's arrival, a poll, the end of a run, a deletion. A command is an
entry of the log. Both are per second of CPU time of one thread. ``--full`` is a virtual day with 5 million segments;
the default measures minutes of the same day, after an initial burst that gives every worker jobs.
"""

from __future__ import annotations

import gc
import time

from engine.simulation.scenario import Fleet, Scenario, Workload
from engine.simulation.simulate import Simulation
from tests.bench.figures import Figures, peak_rss_mb

NAME = "simulate"
SEED = 20261121
DAY_S = 86_400.0
SEGMENTS_PER_DAY = 5_000_000
WORKERS = 1000
POLL_SECONDS = 2.0
WARM_UP_S = 300.0
MEASURED_S = 1200.0
SAMPLE_S = 30.0

SCENARIO = Scenario(
    workload=Workload(
        segments_per_s=SEGMENTS_PER_DAY / DAY_S,
        tenants=20,
        tenant_skew=1.0,
        tenants_per_segment=2,
        shards=16,
        burst_segments=20_000,
    ),
    # The day's load uses nearly all of this fleet. A thousand nodes that poll every second exceed a web machine of two
    # cores (the figure polls_per_s of ``poll``), so they poll every other second.
    fleet=Fleet(workers=WORKERS, poll_s=POLL_SECONDS, fixed_ms=60_000.0, ms_per_mib=12_000.0),
    duration_s=DAY_S,
    keeps_history=False,
    drains=False,
    sample_s=SAMPLE_S,
)


def run(full: bool) -> Figures:
    """Run the benchmark; ``full`` runs the whole day."""
    simulation = Simulation(SCENARIO, SEED)
    simulation.run_for(WARM_UP_S)
    before, measured_s = simulation.outcome(), DAY_S - WARM_UP_S if full else MEASURED_S
    events, segments = before.tally.events, before.tally.segments
    # The rows have no reference cycles: garbage collection would find nothing.
    gc.collect()
    gc.disable()
    started = time.process_time()
    simulation.run_for(measured_s)
    seconds = time.process_time() - started
    gc.enable()
    after = simulation.outcome()
    busy = [sample.busy_slots for sample in after.samples[len(before.samples) :]]
    commands = after.commands - before.commands
    parameters: dict[str, object] = {
        "workers": WORKERS,
        "poll_s": POLL_SECONDS,
        "segments": after.tally.segments,
        "virtual_s": measured_s,
        "steps_checked": after.steps - before.steps,
    }
    figures = {
        "commands_per_s": commands / seconds,
        "events_per_s": (after.tally.events - events) / seconds,
        "utilisation": sum(busy) / (len(busy) * WORKERS),
        "virtual_s_per_s": measured_s / seconds,
        "segments_per_s": (after.tally.segments - segments) / seconds,
        "peak_rss_mb": peak_rss_mb(),
    }
    return Figures(parameters, figures)
