"""Actions as commands: their fields are the options."""

from __future__ import annotations

import getpass
from argparse import ArgumentParser
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from django.core.management.base import CommandError

from engine.core.errors import LithifyError
from webadmin.base.actions.action import ActionContext, OperatorAction, Values
from webadmin.base.actions.fields import ActionField

NOTHING: Values = MappingProxyType({})


def add_options(parser: ArgumentParser, fields: Sequence[ActionField], positional: Collection[str] = ()) -> None:
    """Add the options of these fields, and those of every action: reason and dry run."""
    for field in fields:
        field.add_option(parser, positional)
    parser.add_argument("--why", default="", help="stands in the audit log")
    parser.add_argument("--dry-run", action="store_true", help="only show what would change")


def option_values(fields: Sequence[ActionField], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of these fields."""
    return {field.name: field.from_options(options) for field in fields}


def command_context(options: Mapping[str, Any], why: str = "") -> ActionContext:
    """Return actor, reason and dry-run flag of a command; ``why`` is the reason if the options give none."""
    actor = f"command:{getpass.getuser()}"
    return ActionContext(actor=actor, why=options.get("why") or why, is_dry_run=options.get("dry_run", False))


def run_action(action: OperatorAction, options: Mapping[str, Any], given: Values = NOTHING) -> Any:
    """Run an action with the options of a command and return its outcome. ``given`` replaces fields.

    Raises CommandError.
    """
    fields = [field for field in (*action.targets, *action.fields) if field.name not in given]
    try:
        return action.apply({**option_values(fields, options), **given}, command_context(options, "by command"))
    except LithifyError as error:
        raise CommandError(str(error)) from error
