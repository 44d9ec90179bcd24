"""The invariants of the compaction service by number, checked after each step for the rows that it touched.

They compare the rows with the audit's shadow *before* the step is recorded there. Where each is checked:

| invariant | checked by | when |
|---|---|---|
| 1 | ``invariants.invariant_01_one_place`` | each step |
| 2 | ``invariants.invariant_02_exactly_once_replacement`` | each step |
| 3 | ``quiescence.invariant_03_conservation`` | at rest, item by item |
| 4 | ``quiescence.invariant_04_no_vanishing`` | at rest |
| 5 | ``invariants.invariant_05_atomic_visibility`` | each step, by sums (3 and 4 too) |
| 6 | ``invariants.invariant_06_fencing`` | each poll |
| 7 | ``invariants.invariant_07_single_owner`` | each poll |
| 8 | ``invariants.invariant_08_lease_monotonicity`` | each step |
| 9 | ``order_invariants.invariant_09_order`` | each poll that assigns work |
| 10 | ``invariants.invariant_10_failure_bound`` | each step |
| 11 | ``invariants.invariant_11_bounded_queue`` | each step |
| 12 | ``quiescence.invariant_12_liveness_at_the_limit`` | at rest |
| 13 | ``invariants.invariant_13_no_silent_loss`` | each step |
| 14 | ``invariants.invariant_14_batch_purity`` | each step |
| 15 | ``quiescence.invariant_15_time_based_progress`` | at rest |
| 16 | ``invariants.invariant_16_idempotent_apply`` | each command; ``quiescence.invariant_16_replay`` at rest |
| 17 | ``invariants.invariant_17_pure_prepare`` | each poll |
| 18 | ``invariants.invariant_18_late_add`` | each add |
| 19 | ``invariants.invariant_19_tombstone_cover`` | each step |
| 20 | ``invariants.invariant_20_deletion_delay`` | each deletion |
| 21 | ``removal_invariants.invariant_21_retention_strictness`` | each removal |
| 22 | ``twin_invariants.invariant_22_determinism`` | each poll that assigns work; with 23 at restarts |
| 23 | ``twin_invariants.invariant_23_restart_equivalence`` | at restarts; ``quiescence.check_sums`` at rest |
| 24 | ``invariants.invariant_24_capacity`` | each command |
| 25 | ``invariants.invariant_25_level_growth`` | each step |
| 26 | ``invariants.invariant_26_counter_sanity`` | each step |
| 27 | ``removal_invariants.invariant_27_tenant_isolation`` | each action on a tenant |
| 28 | ``twin_invariants.invariant_28_clock`` | some histories, run again with other worker clocks |

The simulation cannot interleave two database connections; ``tests/webadmin/schedule/test_two_connections.py`` does so
for 1, 2, 7 and 11.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from engine.lanes.profiles.plan.consolidation import is_consolidating
from engine.schedule.model import HOLDING_STATES, LIVE_STATES, AttemptOutcome, JobState
from engine.simulation.checks.audit import Audit, InvariantBroken, Step
from engine.simulation.checks.order_invariants import invariant_09_order
from engine.simulation.checks.removal_invariants import invariant_21_retention_strictness, invariant_27_tenant_isolation
from engine.simulation.checks.twin_invariants import invariant_22_determinism
from engine.simulation.memory.rows import FINAL_LEVEL, LIVE_BLOCKS, REMOVED_BLOCKS, BlockState, MemoryBlock, MemoryJob
from engine.simulation.memory.schedule import DROPPED, LEASED, QUEUED, REPLACED, StaleSnapshot
from engine.simulation.memory.service import PollFact

Invariant = Callable[[Audit, Step], None]

ALLOWED_MOVES: dict[BlockState | None, frozenset[BlockState]] = {
    None: frozenset({BlockState.QUEUED, BlockState.FINAL}),
    BlockState.QUEUED: frozenset({BlockState.OWNED, BlockState.DROPPED}),
    BlockState.OWNED: frozenset({BlockState.QUEUED, BlockState.FINAL, BlockState.REPLACED, BlockState.DROPPED}),
    BlockState.FINAL: frozenset({BlockState.OWNED, BlockState.DROPPED}),
    BlockState.REPLACED: frozenset({BlockState.DELETED}),
    BlockState.DROPPED: frozenset({BlockState.DELETED}),
    BlockState.DELETED: frozenset(),
}


def demand(number: int, holds: object, message: str) -> None:
    """Raise InvariantBroken unless ``holds``."""
    if not holds:
        raise InvariantBroken(number, message)


def check_step(audit: Audit, step: Step) -> None:
    """Check all invariants that the step could have broken, then record the step."""
    if step.blocks or step.action is not None:
        if not _blocks_hold(audit, step):
            for invariant in OF_BLOCKS:
                invariant(audit, step)
        if step.poll is not None:
            _results_hold(audit, step)
        invariant_05_atomic_visibility(audit, step)
    if step.action is not None or step.removals:
        for invariant in OF_ORDERS:
            invariant(audit, step)
    if step.jobs:
        invariant_08_lease_monotonicity(audit, step)
        if any(_is_changed(audit, job) for job in step.jobs):
            for invariant in OF_CHANGED_JOBS:
                invariant(audit, step)
    if step.poll is not None:
        for invariant in OF_POLLS:
            invariant(audit, step)
        if step.poll.applied is not None:
            for invariant in OF_APPLIED_POLLS:
                invariant(audit, step)
    if step.add is not None:
        for invariant in OF_ADDS:
            invariant(audit, step)
    audit.note(step)


def renewals_hold(audit: Audit, poll: PollFact, touched: Sequence[MemoryJob]) -> bool:
    """Check and record a poll that only renews leases and touches only these jobs; a fast path for most steps.

    Return False if the invariants must be checked one by one, which name the broken one.
    """
    if poll.version_before != poll.version_prepared or poll.change_set.changes_plan():
        return False
    request, renewed, jobs = poll.request, poll.renewed, audit.jobs
    if len(request.reports) != len(renewed) or len(touched) > len(renewed):
        return False
    for report, renewal in zip(request.reports, renewed, strict=True):
        view = renewal.job
        shadow = jobs.get(view.id)
        if (
            shadow is None
            or shadow.state is not LEASED
            or report.update.job != view.name
            or report.token != shadow.token
            or audit.token_owner.get(report.token) != request.worker
        ):
            return False
    for job in touched:
        shadow = jobs.get(job.id)
        if (
            shadow is None
            or job.state is not LEASED
            or shadow.state is not LEASED
            or job.token != shadow.token
            or job.failures != shadow.failures
            or job.lease_expires_ms < shadow.lease_expires_ms
        ):
            return False
        shadow.lease_expires_ms = job.lease_expires_ms
    audit.steps += 1
    return True


def _blocks_hold(audit: Audit, step: Step) -> bool:
    """Check the invariants of single blocks (1, 2, 19, 25) together; a fast path.

    Return False if the invariants must be checked one by one, which name the broken one.
    """
    states, ever, tombstones = audit.blocks, audit.ever, audit.schedule.tombstones
    may_replace = step.poll is not None and step.poll.applied is not None
    for block in step.blocks:
        state, ulid = block.state, block.ulid
        before = states.get(ulid)
        if (ulid in tombstones) != (state in REMOVED_BLOCKS) or not _PLACES[state](audit, block):
            return False
        if state is not before:
            if state not in ALLOWED_MOVES[before] or (before is None and ulid in ever):
                return False
            if state is REPLACED and not may_replace:
                return False
            if state is DROPPED and step.action is None:
                return False
        if state is QUEUED and block.level >= FINAL_LEVEL:
            return False
    return not step.jobs or not any(_lists_strays(audit, job) for job in step.jobs)


def _is_changed(audit: Audit, job: MemoryJob) -> bool:
    """Return whether more than the job's lease has changed."""
    shadow = audit.jobs.get(job.id)
    return shadow is None or job.state is not shadow.state or job.failures != shadow.failures


def invariant_01_one_place(audit: Audit, step: Step) -> None:
    """A live block is queued, owned by one job that lists it, or final; never two of them."""
    for block in step.blocks:
        if not _PLACES[block.state](audit, block):
            raise InvariantBroken(1, f"block {block.ulid} says it is {block.state.value}, but is not there")
    for job in step.jobs:
        demand(1, not _lists_strays(audit, job), f"job {job.name} lists blocks of another job")


def _lists_strays(audit: Audit, job: MemoryJob) -> bool:
    """Return whether a job that entered its state in this step lists blocks that it does not own."""
    shadow = audit.jobs.get(job.id)
    is_new = shadow is None or shadow.state is not job.state
    return is_new and job.state in HOLDING_STATES and any(block.owner is not job for block in job.sources)


def invariant_02_exactly_once_replacement(audit: Audit, step: Step) -> None:
    """A block is replaced at most once, by the step that completes its job and makes all results live."""
    for block in step.blocks:
        before = audit.blocks.get(block.ulid)
        if block.state is before:
            continue
        if block.state not in ALLOWED_MOVES[before]:
            raise InvariantBroken(2, f"block {block.ulid} went from {before} to {block.state}")
        if before is None and block.ulid in audit.ever:
            raise InvariantBroken(2, f"block {block.ulid} came back from the dead")
        if block.state is BlockState.REPLACED and (step.poll is None or step.poll.applied is None):
            raise InvariantBroken(2, f"block {block.ulid} was replaced by no poll")
        if block.state is BlockState.DROPPED and step.action is None:
            raise InvariantBroken(4, f"block {block.ulid} was removed by no action")


def _results_hold(audit: Audit, step: Step) -> None:
    """Check the results of completed jobs: live (2), and one level up or, for a rewrite, on the same level (25)."""
    if step.poll is None or step.poll.applied is None:
        return
    rows = audit.schedule.blocks
    ended = {job.id: job for job in step.jobs if job.state is JobState.DONE}
    for completion in step.poll.change_set.completed:
        results, job = step.poll.view.replacements[completion.job.name], ended[completion.job.id]
        for result in results:
            row = rows.get(result.ulid)
            if row is None or row.state not in LIVE_BLOCKS:
                raise InvariantBroken(2, f"result {result.ulid} is not live")
        levels = {block.level for block in results}
        expected = job.level if job.is_rewrite else job.level + 1
        if levels != {expected} and not (not levels and job.masks):
            raise InvariantBroken(25, f"results of {job.name} are of {levels}, not of {expected}")
    for block in step.blocks:
        if block.masks_applied < audit.mask_max and block.state is BlockState.REPLACED:
            audit.let_go.add(block.ulid)  # a job may have no result; invariant 5 checks that no data is missing


def invariant_05_atomic_visibility(audit: Audit, step: Step) -> None:
    """After every step readers see each tenant's data once: accepted data equals live data (also 3 and 4)."""
    for key in audit.count_data(step):
        seen, expected = audit.live[key], audit.accepted[key]
        if seen != expected:
            raise InvariantBroken(5, f"tenant {' '.join(key)}: {seen[0]} of {expected[0]} segments' data is live")


def invariant_06_fencing(audit: Audit, step: Step) -> None:
    """A report counts only for a leased job and under exactly its token; tokens only grow."""
    poll = step.poll
    assert poll is not None
    for name, job_id in _effective(poll):
        shadow = audit.jobs.get(job_id)
        if shadow is None or shadow.state is not JobState.LEASED:
            raise InvariantBroken(6, f"a report on job {name} counted, which no worker holds")
        tokens = [report.token for report in poll.request.reports if report.update.job == name]
        if shadow.token not in tokens:
            raise InvariantBroken(6, f"a report on job {name} counted under {tokens}, it has {shadow.token}")
    if poll.applied is not None:
        for job in poll.applied.assigned:
            demand(
                6, job.token == poll.applied.index > audit.token_max, f"job {job.name} got the old token {job.token}"
            )


def invariant_07_single_owner(audit: Audit, step: Step) -> None:
    """Only the worker that holds the job's token can change the job; a token is issued to one worker."""
    poll = step.poll
    assert poll is not None
    for name, job_id in _effective(poll):
        holder = audit.token_owner.get(audit.jobs[job_id].token)
        if holder != poll.request.worker:
            raise InvariantBroken(7, f"{poll.request.worker} reported on job {name} of {holder}")
    if poll.applied is not None:
        for job in poll.applied.assigned:
            demand(7, job.worker == poll.request.worker, f"job {job.name} went to {job.worker}")
            demand(7, poll.applied.index not in audit.token_owner, f"token {poll.applied.index} was given twice")


def invariant_08_lease_monotonicity(audit: Audit, step: Step) -> None:
    """A renewal never shortens a lease or changes the token; a takeover requires a lease that has strictly ended."""
    for job in step.jobs:
        shadow = audit.jobs.get(job.id)
        if shadow is None or shadow.state is not JobState.LEASED or job.state is not JobState.LEASED:
            continue
        if job.token == shadow.token:
            if job.lease_expires_ms < shadow.lease_expires_ms:
                raise InvariantBroken(8, f"the lease of job {job.name} was shortened")
        else:
            now_ms = step.poll.applied.now_ms if step.poll and step.poll.applied else 0
            demand(8, now_ms > shadow.lease_expires_ms, f"job {job.name} was taken over before its lease was over")


def invariant_10_failure_bound(audit: Audit, step: Step) -> None:
    """Failures increase by one when a job is taken over or returned with a reason; only operators reset them."""
    audit.failures_max = max(audit.failures_max, audit.schedule.limits.failures_max)
    for job in step.jobs:
        shadow = audit.jobs.get(job.id)
        before = shadow.failures if shadow is not None else 0
        if job.failures == before:
            continue
        is_reset = step.action is not None and job.failures == 0
        is_counted = step.poll is not None and step.poll.applied is not None and job.failures == before + 1
        demand(10, is_reset or is_counted, f"failures of job {job.name} went from {before} to {job.failures}")


def invariant_11_bounded_queue(audit: Audit, step: Step) -> None:
    """The count of live jobs is correct, and no step adds a job above the queue limit."""
    live, queue_max = audit.live_jobs, audit.schedule.limits.queue_max
    for job in step.jobs:
        shadow = audit.jobs.get(job.id)
        live += (job.state in LIVE_STATES) - (shadow is not None and shadow.state in LIVE_STATES)
    demand(11, audit.schedule.live_job_count == live, f"{live} live jobs, {audit.schedule.live_job_count} counted")
    if queue_max:
        demand(11, live <= max(queue_max, audit.live_jobs), f"{live} live jobs, the limit is {queue_max}")


def invariant_13_no_silent_loss(audit: Audit, step: Step) -> None:
    """A parked job keeps all its blocks, and the number of parked jobs is correct."""
    parked = audit.parked_jobs
    for job in step.jobs:
        shadow = audit.jobs.get(job.id)
        parked += (job.state is JobState.PARKED) - (shadow is not None and shadow.state is JobState.PARKED)
        if job.state is JobState.PARKED:
            kept = [block for block in job.sources if block.owner is job and block.state is BlockState.OWNED]
            demand(13, job.sources and len(kept) == len(job.sources), f"parked job {job.name} lost blocks")
            demand(13, job.parked_reason, f"job {job.name} was parked without a reason")
    demand(
        13, audit.schedule.parked_count == parked, f"{parked} parked jobs, {audit.schedule.parked_count} in register"
    )


def invariant_14_batch_purity(audit: Audit, step: Step) -> None:
    """Blocks of a job share tenant, level and (except consolidations) shard, within the policy's count and spread."""
    for job in step.jobs:
        if job.id in audit.jobs:
            continue
        places, shards = {(b.tenant, b.level) for b in job.sources}, {b.shard for b in job.sources}
        demand(14, places == {(job.tenant, job.level)}, f"job {job.name} mixes {places}")
        if job.is_rewrite:
            demand(14, len(job.sources) == 1 and shards == {job.shard}, f"job {job.name} rewrites several blocks")
            continue
        policy = audit.schedule.policies[job.level]
        if not is_consolidating(policy, job.tenant):
            demand(14, shards == {job.shard}, f"job {job.name} mixes shards {shards}")
        elif not job.root:
            newest = max(job.sources, key=lambda block: (block.view.created_at_ms, block.ulid))
            demand(14, newest.shard == job.shard, f"job {job.name} is not in the shard of its newest block")
        demand(14, len(job.sources) <= policy.blocks_max, f"job {job.name} has {len(job.sources)} blocks")
        created = [block.view.created_at_ms for block in job.sources]
        demand(14, max(created) - min(created) <= policy.spread_ms, f"blocks of job {job.name} are far apart")


def invariant_16_idempotent_apply(audit: Audit, step: Step) -> None:
    """Applying a change set a second time changes nothing."""
    poll, schedule = step.poll, audit.schedule
    assert poll is not None
    if poll.applied is None:
        return
    before = schedule.version
    try:
        schedule.apply(poll.change_set, poll.request.worker, poll.view.replacements)
    except StaleSnapshot:
        demand(16, schedule.version == before, "a change set that was refused has changed something")
    else:
        raise InvariantBroken(16, f"the change set of command {poll.applied.index} was applied twice")


def invariant_17_pure_prepare(audit: Audit, step: Step) -> None:
    """Prepare changes nothing."""
    poll = step.poll
    assert poll is not None
    demand(17, poll.version_before == poll.version_prepared, "preparing has changed the schedule")


def invariant_18_late_add(audit: Audit, step: Step) -> None:
    """Adding an id that was accepted before changes nothing, whatever the state of its block."""
    add = step.add
    assert add is not None
    repeated = [block.ulid for block in add.blocks if block.ulid in audit.ever]
    if not repeated:
        return
    accepted = set(add.outcome.accepted)
    again = [ulid for ulid in repeated if ulid in accepted]
    demand(18, not again, f"accepted again: {again}")
    if len(repeated) == len(add.blocks):
        demand(18, add.version_before == add.version_after, "adding only known blocks has changed something")


def invariant_19_tombstone_cover(audit: Audit, step: Step) -> None:
    """A replaced block has its tombstone until its deletion is confirmed; a live one has none."""
    tombstones = audit.schedule.tombstones
    for block in step.blocks:
        if (block.ulid in tombstones) != (block.state in REMOVED_BLOCKS):
            raise InvariantBroken(19, f"block {block.ulid} is {block.state.value}: its tombstone is wrong")


def invariant_20_deletion_delay(audit: Audit, ulid: str) -> None:
    """No object is deleted until the cleanup delay after its replacement has strictly passed, and none of a live block.

    Checked when the object is deleted: before the confirmation a clock may jump.
    """
    demand(19, ulid in audit.replaced_at_ms, f"the object of block {ulid} was deleted, which nothing has replaced")
    age_ms = audit.schedule.time().now_ms - audit.replaced_at_ms[ulid]
    demand(20, age_ms > audit.cleanup_delay_ms, f"block {ulid} was deleted after {age_ms} ms")


def invariant_24_capacity(audit: Audit, step: Step) -> None:
    """A poll is assigned and creates no more jobs than its capacity."""
    poll = step.poll
    assert poll is not None
    given = len(poll.applied.assigned) if poll.applied else 0
    demand(24, given <= poll.request.capacity, f"{given} jobs for a capacity of {poll.request.capacity}")
    created = len(poll.change_set.created)
    demand(24, created <= poll.request.capacity, f"{created} new jobs for a capacity of {poll.request.capacity}")


def invariant_25_level_growth(audit: Audit, step: Step) -> None:
    """No block of the last level is queued; ``_results_hold`` checks the level of results."""
    for block in step.blocks:
        if block.level >= FINAL_LEVEL and block.state is BlockState.QUEUED:
            raise InvariantBroken(25, f"block {block.ulid} of the last level is queued")


def invariant_26_counter_sanity(audit: Audit, step: Step) -> None:
    """For each level: jobs created = completed + dissolved + present (including parked)."""
    change: dict[int, int] = {}
    for job in step.jobs:
        shadow = audit.jobs.get(job.id)
        here = (job.state in HOLDING_STATES) - (shadow is not None)
        if here:
            change[job.level] = change.get(job.level, 0) + here
    for level, here in change.items():
        counters, present = audit.schedule.counters[level], audit.present[level] + here
        ended = counters.completed + counters.dissolved
        message = f"level {level}: {counters.created} created, {ended} ended, {present} present"
        demand(26, counters.created == ended + present, message)


def _effective(poll: PollFact) -> Iterator[tuple[str, int]]:
    """Yield the name and id of jobs that a report of this poll changed."""
    for renewal in poll.renewed:
        yield renewal.job.name, renewal.job.id
    if poll.applied is not None:
        named = {report.update.job for report in poll.request.reports}
        for completion in poll.change_set.completed:
            yield completion.job.name, completion.job.id
        for returned in poll.change_set.returned:
            if returned.job.name in named and returned.outcome is not AttemptOutcome.EXPIRED:
                yield returned.job.name, returned.job.id


def _is_queued(audit: Audit, block: MemoryBlock) -> bool:
    queue = block.queue
    if queue is None or block.owner is not None:
        return False
    entry = (block.view.arrived_at_ms, block.ulid, block)
    place = bisect_left(queue.entries, entry[:2])
    is_there = place < len(queue.entries) and queue.entries[place][2] is block
    return is_there and (queue.tenant, queue.shard, queue.level) == (block.tenant, block.shard, block.level)


def _is_owned(audit: Audit, block: MemoryBlock) -> bool:
    job = block.owner
    if job is None or block.queue is not None:
        return False
    return audit.schedule.jobs.get(job.name) is job and job.state in HOLDING_STATES and block in job.sources


def _is_free(audit: Audit, block: MemoryBlock) -> bool:
    return block.owner is None and block.queue is None


_PLACES: dict[BlockState, Callable[[Audit, MemoryBlock], bool]] = {
    BlockState.QUEUED: _is_queued,
    BlockState.OWNED: _is_owned,
    BlockState.FINAL: _is_free,
    BlockState.REPLACED: _is_free,
    BlockState.DROPPED: _is_free,
    BlockState.DELETED: _is_free,
}

OF_BLOCKS: tuple[Invariant, ...] = (
    invariant_01_one_place,
    invariant_02_exactly_once_replacement,
    invariant_19_tombstone_cover,
    invariant_25_level_growth,
)
OF_CHANGED_JOBS: tuple[Invariant, ...] = (
    invariant_10_failure_bound,
    invariant_11_bounded_queue,
    invariant_13_no_silent_loss,
    invariant_14_batch_purity,
    invariant_26_counter_sanity,
)
OF_POLLS: tuple[Invariant, ...] = (
    invariant_06_fencing,
    invariant_07_single_owner,
    invariant_17_pure_prepare,
)
OF_APPLIED_POLLS: tuple[Invariant, ...] = (
    invariant_09_order,
    invariant_16_idempotent_apply,
    invariant_22_determinism,
    invariant_24_capacity,
)
OF_ORDERS: tuple[Invariant, ...] = (
    invariant_21_retention_strictness,
    invariant_27_tenant_isolation,
)
OF_ADDS: tuple[Invariant, ...] = (invariant_18_late_add,)
