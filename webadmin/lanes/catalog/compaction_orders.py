"""The actions on repositories and branches in the admin: forms that call services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from webadmin.adminkit import formatting as show
from webadmin.adminkit.orders import OperatorOrder, OrderForm, Outcome
from webadmin.adminkit.setting_labels import setting_field, write_size
from webadmin.lanes.catalog.compaction_policies import NUMBERS, WORDS, policy_of
from webadmin.lanes.catalog.models import Branch, Repository
from webadmin.lanes.catalog.repository_sections import setting_value
from webadmin.lanes.catalog.services.compaction.change_compaction import change_policy, order_compaction
from webadmin.lanes.catalog.services.garbage.collect_garbage import collect_garbage
from webadmin.lanes.catalog.services.repositories import restore_repository
from webadmin.lanes.catalog.states import RepositoryState
from webadmin.schedule.services.operation import Order

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The outcome of an action or of its dry run."""

    changed: Sequence[str]
    told: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as the action's page shows it."""
        return {**self.told, "changed": list(self.changed)}


PolicyForm = type(
    "PolicyForm",
    (OrderForm,),
    {name: setting_field(WORDS[name], low, high) for name, (low, high) in NUMBERS.items()}
    | {"__doc__": "All settings of a repository's compactions.", "field_order": (*NUMBERS, "why")},
)


def _order(values: Values, actor: str, is_dry_run: bool) -> Order:
    return Order(actor=actor, why=values["why"], is_dry_run=is_dry_run)


def form_values(rows: Sequence[Repository]) -> dict[str, Any]:
    """Return the settings of the first of these repositories as initial values of the form."""
    if not rows:
        return {}
    policy = policy_of(rows[0])
    told = {name: int(getattr(policy, name)) for name in NUMBERS}
    return {name: write_size(value) if WORDS[name].unit == "bytes" else value for name, value in told.items()}


def _change(rows: Sequence[Repository], values: Values, actor: str, is_dry_run: bool) -> Outcome:
    [repository] = rows[:1]
    before = policy_of(repository)
    different = change_policy(
        repository, {name: values[name] for name in NUMBERS}, order=_order(values, actor, is_dry_run)
    )
    settings = [
        {
            "setting": WORDS[name].label,
            "before": setting_value(name, getattr(before, name)),
            "after": setting_value(name, value),
        }
        for name, value in different.items()
    ]
    return Done(changed=[WORDS[name].label for name in different], told={"settings": settings})


def _compact(rows: Sequence[Branch], values: Values, actor: str, is_dry_run: bool) -> Outcome:
    for row in rows:
        order_compaction(row, order=_order(values, actor, is_dry_run))
    return Done(changed=[f"{row.repository}/{row.name}" for row in rows])


def _collect(rows: Sequence[Repository], values: Values, actor: str, is_dry_run: bool) -> Outcome:
    counts, names = [], []
    for row in rows:
        done = collect_garbage(row, order=_order(values, actor, is_dry_run))
        counts += [
            {"what": what, "count": count, "repository": str(row)}
            for what, count in (
                ("Files looked at", show.count_text(done.files_seen)),
                ("Files condemned: deleted after their grace", show.count_text(done.files_condemned)),
                ("Files deleted", show.count_text(done.files_deleted)),
                ("Objects looked at", show.count_text(done.objects_seen)),
                ("Objects condemned: deleted by a later round", show.count_text(done.objects_condemned)),
                ("Objects deleted", show.count_text(done.objects_deleted)),
                ("Rows of retired tokens", show.count_text(done.rows_deleted)),
                ("Freed", show.size_text(done.bytes_deleted)),
            )
        ]
        names += [{"file or object": name, "repository": str(row)} for name in done.names]
    return Done(changed=[str(row) for row in rows], told={"counts": counts, "the_first_that_go": names})


def _restore(rows: Sequence[Repository], values: Values, actor: str, is_dry_run: bool) -> Outcome:
    for row in rows:
        restore_repository(row, order=_order(values, actor, is_dry_run))
    return Done(changed=[str(row) for row in rows])


def _is_active(row: Repository) -> bool:
    return row.state == RepositoryState.ACTIVE


CHANGE_POLICY = OperatorOrder(
    name="change-compaction",
    label="Change what is set",
    about="When branches are compacted, how much of that there may be, and how long what nothing reaches is kept. It "
    "holds from the sensor's next round.",
    form=PolicyForm,
    give=_change,
    fits=_is_active,
    initial=form_values,
)
COLLECT = OperatorOrder(
    name="collect-garbage",
    label="Collect garbage",
    about="Looks for files, objects and rows that nothing reaches. The preview deletes nothing and says what would go "
    "now; what is condemned goes after its grace. It reads every range of the repository.",
    give=_collect,
    fits=_is_active,
)
COMPACT_NOW = OperatorOrder(
    name="compact-now",
    label="Compact now",
    about="Has these branches compacted within seconds, whatever their thresholds, cooldown and budget are. Nothing "
    "that is visible on them changes.",
    give=_compact,
)

RESTORE = OperatorOrder(
    name="restore",
    label="Restore",
    about="Makes deleted repositories reachable again, with all that was on them. It is refused once their files are "
    "being deleted, or if another repository has the name or the storage namespace by now.",
    give=_restore,
    fits=lambda row: row.state == RepositoryState.DELETED,
)

REPOSITORY_ORDERS = (CHANGE_POLICY, COLLECT, RESTORE)
BRANCH_ORDERS = (COMPACT_NOW,)
