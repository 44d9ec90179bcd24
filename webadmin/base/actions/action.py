"""The declaration of an operator's action."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rest_framework import serializers
from rest_framework.permissions import BasePermission

from webadmin.base.access.scopes import MayOperate
from webadmin.base.actions.fields import ActionField, Text

WHY_MAX = 500
WHY = Text("why", "Why", "Stays in the audit log and beside what is changed.", length_max=WHY_MAX, is_required=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionContext:
    """The actor and the reason of an action; a dry run only returns what would change."""

    actor: str
    why: str = ""
    is_dry_run: bool = False


Values = Mapping[str, Any]
Apply = Callable[[Values, ActionContext], Any]


class LeftSerializer(serializers.Serializer[Any]):
    """What an action left unchanged."""

    job = serializers.CharField()
    reason = serializers.CharField()


class OutcomeSerializer(serializers.Serializer[Any]):
    """What an action changed, or would change."""

    action = serializers.CharField()
    dry_run = serializers.BooleanField()
    changed = serializers.ListField(child=serializers.CharField())
    left = LeftSerializer(many=True)
    commands = serializers.ListField(child=serializers.IntegerField())
    notes = serializers.ListField(child=serializers.CharField())


ACTIONS: dict[str, OperatorAction] = {}
"""All actions by operation; pages have variants of them."""


@dataclass(frozen=True, kw_only=True)
class OperatorAction:
    """An action of operators: what it is called, what it needs, who may run it, and the service that runs it.

    ``apply`` calls the service with the values of all fields; the service validates, changes in one transaction with
    its audit entry, and returns the outcome (a mapping, or an object with ``to_json``). With ``is_dry_run`` it only
    returns what it would change: that is the preview.

    ``targets`` are the fields that say what the action is about. On a page of rows they come from the selected rows:
    ``of_rows`` returns the values of the targets, once per call of ``apply``; None: the action stands above the list,
    and its form has the targets too. ``operation`` is its name in the API and as a command, ``name`` that on a page.
    ``has_command``: its values can be given as options. ``permission`` is that of the API; on a page it is the
    permission to change rows of its model.

    The rest is for the page: ``initial`` fills the form from the rows, ``fits`` returns whether a row can have the
    action, ``describe`` replaces the JSON of the outcomes, and ``shows_outcome`` shows them once on a page of their own
    instead of a line above the list. ``state_of`` returns the state of a row that the action changes: if it differs
    from that at the preview, the action is not executed, so that a page that is submitted again does nothing twice.
    """

    operation: str
    label: str
    about: str
    apply: Apply
    name: str = ""
    targets: tuple[ActionField, ...] = ()
    fields: tuple[ActionField, ...] = ()
    of_rows: Callable[[Sequence[Any]], Sequence[Values]] | None = None
    permission: type[BasePermission] = MayOperate
    outcome: type[serializers.Serializer[Any]] = OutcomeSerializer
    may_conflict: bool = False
    has_command: bool = True
    initial: Callable[[Sequence[Any]], Values] = lambda rows: {}
    fits: Callable[[Any], bool] = lambda row: True
    describe: Callable[[Sequence[Any], bool], Mapping[str, Any]] | None = None
    shows_outcome: bool = False
    state_of: Callable[[Any], object] = field(default=lambda row: None)

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.operation.replace("_", "-"))
        ACTIONS.setdefault(self.operation, self)

    @property
    def all_fields(self) -> tuple[ActionField, ...]:
        """Return the fields with the targets and the reason."""
        return (*self.targets, *self.fields, WHY)

    @property
    def is_of_rows(self) -> bool:
        """Return whether the action applies to selected rows of a page."""
        return self.of_rows is not None

    @property
    def page_fields(self) -> tuple[ActionField, ...]:
        """Return the fields of the form."""
        return self.all_fields if self.of_rows is None else (*self.fields, WHY)


def outcome_json(outcome: Any) -> dict[str, Any]:
    """Return the JSON of an outcome."""
    return dict(outcome) if isinstance(outcome, Mapping) else outcome.to_json()


def joined(outcomes: Sequence[Any]) -> dict[str, Any]:
    """Return the JSON of several outcomes of one action as one: their lists are joined, other values are a table."""
    found = [outcome_json(outcome) for outcome in outcomes]
    if len(found) == 1:
        return found[0]
    lists: dict[str, list[Any]] = {}
    for one in found:
        for name, value in one.items():
            if isinstance(value, list):
                lists.setdefault(name, []).extend(value)
    plain = [{name: value for name, value in one.items() if not isinstance(value, list)} for one in found]
    shared = (
        {name: value for name, value in plain[0].items() if all(one.get(name) == value for one in plain)}
        if plain
        else {}
    )
    rest = [{name: value for name, value in one.items() if name not in shared} for one in plain]
    return shared | ({"outcomes": rest} if any(rest) else {}) | lists
