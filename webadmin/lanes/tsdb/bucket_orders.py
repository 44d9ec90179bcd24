"""Admin actions on buckets and quarantined blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from webadmin.adminkit.order_fields import choice_field, number_field, switch_field, text_field
from webadmin.adminkit.orders import OperatorOrder, OrderForm
from webadmin.lanes.tsdb.models import LAYOUTS, NAME_MAX, URL_MAX, WINNERS, Bucket
from webadmin.lanes.tsdb.services.buckets import (
    PARTIAL_AGE_SECONDS_MIN,
    SETTINGS,
    adopt_bucket,
    change_bucket,
    check_adoption,
)
from webadmin.lanes.tsdb.services.quarantine_sources import release_sources
from webadmin.lanes.tsdb.services.withdraw_groups import withdraw_groups
from webadmin.lanes.tsdb.states import GroupState
from webadmin.schedule.services.operation import OperationOutcome, Order

DAY_S = 86_400


class AdoptForm(OrderForm):
    """Form to adopt a bucket: its URL and layout."""

    url = text_field("URL", "file:///folder or s3://bucket/prefix?endpoint=URL&region=NAME", URL_MAX, required=True)
    layout = choice_field("Layout", LAYOUTS, "Whose compactor we replace; stop it first.")
    name = text_field("Name", "Empty: made of the URL.", NAME_MAX)


class ChangeForm(OrderForm):
    """Form to change the settings of a bucket."""

    ranges = text_field("Ranges", "Lengths of intervals, each a multiple of the one before.", 100, required=True)
    consistency_delay_seconds = number_field(
        "Consistency delay", "Seconds to wait for late blocks of an interval.", low=0, high=DAY_S, required=True
    )
    winner = choice_field("Winner", WINNERS, "Which of two conflicting samples stays.")
    partition_series = number_field(
        "Series per part",
        "Larger groups are cut by series, or not planned where parts are not allowed; 0: any size.",
        low=0,
        high=1 << 40,
        required=True,
    )
    partition_index_bytes = number_field(
        "Index bytes per part", "The same by the size of indexes.", low=0, high=1 << 50, required=True
    )
    replication = number_field(
        "Replication", "How often the same series come in the smallest range.", low=1, high=100, required=True
    )
    readers_know_partitions = switch_field(
        "Readers know partitions",
        "Only for a Cortex whose compactor and readers run partitioning compaction: groups may be cut into parts. All "
        "others delete all parts but one as duplicates.",
    )
    deletion_delay_seconds = number_field(
        "Deletion delay", "Seconds between a deletion mark and the deletion.", low=0, high=365 * DAY_S, required=True
    )
    partial_age_seconds = number_field(
        "Age of unfinished uploads",
        "Seconds after which they are deleted.",
        low=PARTIAL_AGE_SECONDS_MIN,
        high=365 * DAY_S,
        required=True,
    )
    replica_labels = text_field(
        "Replica labels",
        "By which replicas of a stream differ (Thanos), with commas; results lose them. Fixed once blocks were found.",
        500,
    )
    tenant_shard_size = number_field(
        "Workers per tenant", "That are offered its jobs first; 0: all.", low=0, high=10_000, required=True
    )
    is_paused = switch_field("Paused", "Neither scanned nor planned nor cleaned.")


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketsChanged:
    """The buckets that an action changed, or would change in a dry run."""

    changed: Sequence[str]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the result in the form that the action's page shows."""
        return {"changed": list(self.changed), **self.settings}


def _adopt(rows: Sequence[Any], values: Mapping[str, Any], actor: str, is_dry_run: bool) -> BucketsChanged:
    order = Order(actor=actor, why=values["why"], is_dry_run=is_dry_run)
    told = {name: values[name] for name in ("url", "layout", "name")}
    bucket = check_adoption(**told) if is_dry_run else adopt_bucket(**told, order=order)
    return BucketsChanged(changed=[bucket.name], settings={"url": bucket.url, "layout": bucket.layout})


def _change(rows: Sequence[Any], values: Mapping[str, Any], actor: str, is_dry_run: bool) -> BucketsChanged:
    order = Order(actor=actor, why=values["why"], is_dry_run=is_dry_run)
    wanted = {name: values[name] for name in SETTINGS}
    different = [(row.name, change_bucket(row, wanted, order=order)) for row in rows]
    return BucketsChanged(
        changed=[name for name, changes in different if changes],
        settings={
            f"{name}: {setting}": str(value) for name, changes in different for setting, value in changes.items()
        },
    )


def _initial(rows: Sequence[Bucket]) -> dict[str, Any]:
    return {name: getattr(rows[0], name) for name in SETTINGS} if rows else {}


def _release(rows: Sequence[Any], values: Mapping[str, Any], actor: str, is_dry_run: bool) -> OperationOutcome:
    order = Order(actor=actor, why=values["why"], is_dry_run=is_dry_run)
    return release_sources([row.block.ulid for row in rows], order=order)


def _withdraw(rows: Sequence[Any], values: Mapping[str, Any], actor: str, is_dry_run: bool) -> OperationOutcome:
    order = Order(actor=actor, why=values["why"], is_dry_run=is_dry_run)
    return withdraw_groups([row.id for row in rows], order=order)


ADOPT = OperatorOrder(
    name="adopt-bucket",
    label="Adopt a bucket",
    about="Makes us the compactor of a bucket of Prometheus blocks. Its own compactor must not run beside us.",
    form=AdoptForm,
    give=_adopt,
    of_rows=False,
)
CHANGE = OperatorOrder(
    name="change-bucket",
    label="Change settings",
    about="Its tenants are planned anew with these. Jobs that were made already stay as they are.",
    form=ChangeForm,
    give=_change,
    initial=_initial,
)
RELEASE = OperatorOrder(
    name="release-sources",
    label="Release",
    about="Lets blocks be planned again that could not be read, once they are repaired; takes their marks back.",
    give=_release,
    fits=lambda row: row.released_at_ms is None,
)
WITHDRAW = OperatorOrder(
    name="withdraw-result",
    label="Withdraw result",
    about="For a result that the bucket refuses for good: its sources are live again and merged anew.",
    give=_withdraw,
    fits=lambda row: row.state == GroupState.DONE,
)
