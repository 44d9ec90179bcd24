"""Operators' actions on buckets, quarantined blocks and results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rest_framework import serializers

from webadmin.base.actions.action import ActionContext, OperatorAction, Values
from webadmin.base.actions.fields import Choice, Group, Number, Numbers, Switch, Text, Texts
from webadmin.lanes.tsdb.models import LAYOUTS, NAME_MAX, URL_MAX, WINNERS, Bucket
from webadmin.lanes.tsdb.services.buckets import (
    PARTIAL_AGE_SECONDS_MIN,
    SETTINGS,
    adopt_bucket,
    change_bucket,
    check_adoption,
    find_bucket,
)
from webadmin.lanes.tsdb.services.quarantine_sources import release_sources
from webadmin.lanes.tsdb.services.withdraw_groups import withdraw_groups
from webadmin.lanes.tsdb.states import GroupState
from webadmin.schedule.register import NAMES_MAX

DAY_S = 86_400
GROUP_ID_MAX = (1 << 63) - 1
ULID_LENGTH = 26

BUCKET_SETTINGS = Group(
    "settings",
    "Settings",
    "Omitted settings keep their value.",
    component="BucketSettings",
    fields=(
        Text("ranges", "Ranges", "Interval lengths, each a multiple of the previous one.", length_max=100),
        Number(
            "consistency_delay_seconds",
            "Consistency delay",
            "Seconds to wait for late blocks of an interval.",
            high=DAY_S,
        ),
        Choice("winner", "Winner", "Which of two conflicting samples is kept.", choices=WINNERS),
        Number(
            "partition_series",
            "Series per part",
            "Larger groups are partitioned by series, or not planned if parts are not allowed; 0: unlimited.",
            high=1 << 40,
        ),
        Number("partition_index_bytes", "Index bytes per part", "The same by index size; 0: unlimited.", high=1 << 50),
        Number("replication", "Replication", "Copies of each series.", low=1, high=100),
        Switch(
            "readers_know_partitions",
            "Readers know partitions",
            "Only for Cortex with partitioning compaction in compactor and readers: groups may be divided into "
            "parts. Other readers delete all parts but one as duplicates.",
        ),
        Number(
            "deletion_delay_seconds",
            "Deletion delay",
            "Seconds between a deletion mark and the deletion.",
            high=365 * DAY_S,
        ),
        Number(
            "partial_age_seconds",
            "Age of unfinished uploads",
            "Seconds after which unfinished uploads are deleted.",
            low=PARTIAL_AGE_SECONDS_MIN,
            high=365 * DAY_S,
        ),
        Text(
            "replica_labels",
            "Replica labels",
            "Comma-separated labels that distinguish replicas (Thanos); removed from results. Immutable once blocks "
            "were found.",
            length_max=500,
        ),
        Number("tenant_shard_size", "Workers per tenant", "Workers offered the jobs first; 0: all.", high=10_000),
        Switch("is_paused", "Paused", "No scans, planning or deletions."),
    ),
    is_partial=True,
)


class BucketOutcomeSerializer(serializers.Serializer[Any]):
    """The bucket that an action changed, or would change in a dry run."""

    changed = serializers.ListField(child=serializers.CharField())
    settings = serializers.DictField()
    dry_run = serializers.BooleanField()


def _adopt(values: Values, context: ActionContext) -> dict[str, Any]:
    about = {name: values[name] for name in ("url", "layout", "name")}
    settings = values.get("settings", {})
    bucket = (
        check_adoption(**about, **settings)
        if context.is_dry_run
        else adopt_bucket(**about, **settings, context=context)
    )
    adopted = {"url": bucket.url, "layout": bucket.layout}
    return {"changed": [bucket.name], "settings": adopted, "dry_run": context.is_dry_run}


def _change(values: Values, context: ActionContext) -> dict[str, Any]:
    bucket = find_bucket(values["bucket"])
    changed = change_bucket(bucket, values["settings"], context=context)
    return {"changed": [bucket.name] if changed else [], "settings": changed, "dry_run": context.is_dry_run}


def _described(outcomes: Sequence[dict[str, Any]], is_dry_run: bool) -> dict[str, Any]:
    changed = [name for one in outcomes for name in one["changed"]]
    if len(outcomes) == 1:
        return {"changed": changed, **outcomes[0]["settings"]}
    each = [(one["changed"][0], one["settings"]) for one in outcomes if one["changed"]]
    settings = {f"{name}: {setting}": str(value) for name, found in each for setting, value in found.items()}
    return {"changed": changed, **settings}


def _initial(rows: Sequence[Bucket]) -> dict[str, Any]:
    return {name: getattr(rows[0], name) for name in SETTINGS} if rows else {}


ADOPT = OperatorAction(
    operation="adopt_bucket",
    label="Adopt a bucket",
    about="Takes over compaction of a bucket of Prometheus blocks. Its own compactor must not run beside this service.",
    targets=(
        Text(
            "url",
            "URL",
            "file:///folder or s3://bucket/prefix?endpoint=URL&region=NAME",
            length_max=URL_MAX,
            is_required=True,
        ),
        Choice("layout", "Layout", "Stop the compactor of this system first.", choices=LAYOUTS, is_required=True),
        Text("name", "Name", "Empty: derived from the URL.", length_max=NAME_MAX),
    ),
    fields=(BUCKET_SETTINGS,),
    apply=_adopt,
    outcome=BucketOutcomeSerializer,
    describe=_described,
)
CHANGE = OperatorAction(
    operation="change_bucket",
    label="Change settings",
    about="Changes the settings of a bucket and plans its tenants again. Existing jobs are unchanged.",
    targets=(Text("bucket", "Bucket", "Name of the bucket.", length_max=NAME_MAX, is_required=True),),
    fields=(BUCKET_SETTINGS,),
    apply=_change,
    outcome=BucketOutcomeSerializer,
    of_rows=lambda rows: [{"bucket": row.name} for row in rows],
    initial=_initial,
    describe=_described,
)
BUCKET_ACTIONS = (replace(ADOPT, fields=()), CHANGE)
RELEASE = OperatorAction(
    operation="release_sources",
    label="Release",
    about="Plans repaired blocks again that could not be read, and removes their no-compact marks.",
    targets=(
        Texts("blocks", "Blocks", "ULIDs of blocks.", length_max=ULID_LENGTH, count_max=NAMES_MAX),
        Switch("all", "All", "All blocks in quarantine."),
    ),
    apply=lambda values, context: release_sources(values["blocks"], everything=values["all"], context=context),
    of_rows=lambda rows: [{"blocks": [row.block.ulid for row in rows], "all": False}],
    fits=lambda row: row.released_at_ms is None,
)
WITHDRAW = OperatorAction(
    operation="withdraw_result",
    label="Withdraw result",
    about="Withdraws a result that the bucket permanently rejects: its sources are live again and are merged again.",
    targets=(
        Numbers("groups", "Groups", "Group numbers.", low=1, high=GROUP_ID_MAX, count_max=NAMES_MAX, is_required=True),
    ),
    apply=lambda values, context: withdraw_groups(values["groups"], context=context),
    of_rows=lambda rows: [{"groups": [row.id for row in rows]}],
    fits=lambda row: row.state == GroupState.DONE,
)
