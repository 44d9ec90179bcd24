"""Fields that actions on tables share: the table, an interval, the policy, offered files."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from webadmin.base.actions.fields import ActionField, Number
from webadmin.lanes.tables.models import DataSource
from webadmin.lanes.tables.policy_fields import PolicyField
from webadmin.lanes.tables.services.read_files import FIRST_TIME_MS, LAST_TIME_MS
from webadmin.lanes.tables.services.sources import find_table

DEFAULT_TENANT = "anonymous"


@dataclass(frozen=True, kw_only=True)
class TableField(ActionField):
    """A table: in the API that of the URL, in commands given by tenant and name."""

    def add_option(self, parser: ArgumentParser, positional: Collection[str] = ()) -> None:
        parser.add_argument("--table", required=True, help="which one")
        parser.add_argument("--tenant", default=DEFAULT_TENANT, help=f"whose (default: {DEFAULT_TENANT})")

    def from_options(self, options: Mapping[str, Any]) -> DataSource:
        return find_table(options["tenant"], options["table"])


TABLE = TableField("table", "Table")
START_MS = Number(
    "start_ms", "From", "Unix milliseconds, included.", low=FIRST_TIME_MS, high=LAST_TIME_MS, is_required=True
)
END_MS = Number(
    "end_ms", "Until", "Unix milliseconds, not included.", low=FIRST_TIME_MS, high=LAST_TIME_MS + 1, is_required=True
)
POLICY = PolicyField("policy", "Policy", "Settings by name; those that are not given stay.")
