"""Explain the staging area of a branch, named ``tenant/repository/branch``: state, reason, and possible actions."""

from __future__ import annotations

from engine.lanes.catalog.jobs import KIND
from engine.lanes.catalog.plan.sensor import Budget, Decision, decide
from engine.schedule.explain import Explanation, explain_place
from engine.schedule.progress import count_text
from webadmin.lanes.catalog.branch_loads import WatchedBranch, budgets_of, watched_branches
from webadmin.lanes.catalog.compaction_policies import policy_of, sensor_policy
from webadmin.lanes.catalog.lane_models import Compaction
from webadmin.lanes.catalog.models import Branch, Repository
from webadmin.lanes.catalog.states import CompactionState, RepositoryState
from webadmin.lanes.catalog.status import statuses
from webadmin.schedule.explain_places import pauses_of, place_facts
from webadmin.schedule.models import Job


def weigh(one: WatchedBranch, budget: Budget | None = None) -> Decision:
    """Return the decision of the sensor for a branch now, if it were the only one of its repository."""
    repository = one.branch.repository
    policy = sensor_policy(policy_of(repository), is_read_only=repository.is_read_only)
    [decision] = decide([one.load], policy, budget or budgets_of([repository])[repository.pk])
    return decision


def explain_branch(name: str) -> list[Explanation]:
    """Explain the branch of this name, if there is one."""
    tenant, _, rest = name.partition("/")
    repository, _, branch = rest.partition("/")
    if not branch:
        return []
    rows = Branch.objects.filter(
        repository__tenant=tenant,
        repository__name=repository,
        repository__state=RepositoryState.ACTIVE,
        name=branch,
    )
    found = watched_branches(list(rows.values_list("pk", flat=True)))
    return [_explained(one) for one in found]


def explain_repository(name: str) -> list[Explanation]:
    """Explain the repository ``tenant/name``, if there is one."""
    tenant, _, repository = name.partition("/")
    rows = Repository.objects.filter(tenant=tenant, name=repository, state=RepositoryState.ACTIVE)
    return [_repository(row) for row in rows]


def _repository(repository: Repository) -> Explanation:
    now = statuses([repository])[repository.pk]
    counts = (
        (now.wanted, f"{count_text(now.wanted, 'branch')} worth compacting"),
        (now.sealed_tokens, count_text(now.sealed_tokens, "sealed token")),
        (now.failed, f"{count_text(now.failed, 'compaction')} failed within the last hour"),
    )
    waits = [text for count, text in counts if count]
    paused = pauses_of(lane=KIND, tenant=repository.tenant, level=0, planning=True)
    open_ones = Compaction.objects.filter(repository=repository, state=CompactionState.OPEN)
    jobs = Job.objects.filter(id__in=open_ones.values("job"))
    return explain_place(f"Repository {repository}", place_facts(jobs, waits=waits, paused=paused))


def _explained(one: WatchedBranch) -> Explanation:
    decision = weigh(one)
    subject = f"Branch {one.branch.repository}/{one.branch.name}"
    under_way = Compaction.objects.filter(branch_id=one.branch.pk, state=CompactionState.OPEN).first()
    if under_way is not None:
        job = under_way.job
        if one.failed:
            after = "the sensor retries after the cooldown, or an operator requeues the job or compacts the branch"
            return Explanation(
                subject=subject, state=f"its compaction failed (parked: {job})", why=one.failed, next=after
            )
        state = "job not created yet" if job is None else f"{job.state}: {job.name}"
        return Explanation(subject=subject, state=f"being compacted ({state})", why=under_way.cause)
    last = Compaction.objects.filter(branch_id=one.branch.pk).first()
    before = (
        ""
        if last is None
        else f"; its last compaction: {last.get_state_display()}"
        + (f", {last.ended_because}" if last.ended_because else "")
    )
    following = {
        True: "the sensor starts a compaction within seconds",
        False: "a compaction starts when a threshold is reached or an operator requests it",
    }[decision.fires]
    state = "about to be compacted" if decision.fires else "not compacted"
    return Explanation(subject=subject, state=state, why=decision.reason + before, next=following)
