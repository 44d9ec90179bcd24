"""Says of a branch, named ``tenant/repository/branch``, how its staging area stands, why, and what would change it."""

from __future__ import annotations

from engine.planning.staging.sensor import Budget, Decision, decide
from engine.scheduling.explain import Explanation
from webadmin.catalog.branch_loads import WatchedBranch, budgets_of, watched_branches
from webadmin.catalog.compaction_policies import policy_of, sensor_policy
from webadmin.catalog.lane_models import Compaction
from webadmin.catalog.models import Branch
from webadmin.catalog.states import CompactionState, RepositoryState


def weigh(one: WatchedBranch, budget: Budget | None = None) -> Decision:
    """Return what the sensor would say of a branch now, if it were the only one of its repository."""
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


def _explained(one: WatchedBranch) -> Explanation:
    decision = weigh(one)
    subject = f"Branch {one.branch.repository}/{one.branch.name}"
    under_way = Compaction.objects.filter(branch_id=one.branch.pk, state=CompactionState.OPEN).first()
    if under_way is not None:
        job = under_way.job
        state = "being gathered" if job is None else f"{job.state}: {job.name}"
        return Explanation(subject=subject, state=f"being compacted ({state})", why=under_way.cause)
    last = Compaction.objects.filter(branch_id=one.branch.pk).first()
    before = (
        ""
        if last is None
        else f"; its last compaction: {last.get_state_display()}"
        + (f", {last.ended_because}" if last.ended_because else "")
    )
    following = {
        True: "the sensor begins a compaction within seconds",
        False: "a compaction begins when a threshold is reached, or when an operator orders it",
    }[decision.fires]
    state = "about to be compacted" if decision.fires else "left as it is"
    return Explanation(subject=subject, state=state, why=decision.reason + before, next=following)
