"""The REST endpoint of an action: its fields are the request and its schema, ``dry_run`` previews."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.urls import URLPattern, path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from engine.protocol.fields import Fields
from webadmin.base.access.scopes import MayOperate, credential_of
from webadmin.base.actions.action import ActionContext, OperatorAction, Values, outcome_json
from webadmin.base.actions.fields import Switch, reject_unknown, serializer_of
from webadmin.base.error_answers import ErrorSerializer

GivenByUrl = Mapping[str, Callable[[Any], Any]]
"""Values that a view reads from its URL, by name of the field."""
DRY_RUN = Switch("dry_run", "Dry run", "only return what would change")


ERRORS = dict.fromkeys((400, 401, 403, 404, 413, 415), ErrorSerializer)


class OperatorView(APIView):
    """A view that needs the scope ``operate``."""

    permission_classes = [MayOperate]


def read_body(data: Any, action: OperatorAction, actor: str, given: Values) -> tuple[dict[str, Any], ActionContext]:
    """Return the values of the fields, and the context. Raises InvalidMessage. ``given`` are values of the URL."""
    fields = Fields.of(data, "$")
    known = [field for field in action.all_fields if field.name not in given]
    reject_unknown(fields, known, [DRY_RUN.name])
    values = {field.name: field.read(fields) for field in known}
    why = values.pop("why")
    return {**given, **values}, ActionContext(actor=actor, why=why, is_dry_run=DRY_RUN.read(fields))


def request_serializer(action: OperatorAction, given: tuple[str, ...] = ()) -> type[serializers.Serializer[Any]]:
    """Return the request in the OpenAPI schema."""
    name = "".join(part.capitalize() for part in action.operation.split("_"))
    fields = [field for field in action.all_fields if field.name not in given]
    return serializer_of(f"{name}Serializer", [*fields, DRY_RUN], action.about)


def post_action(action: OperatorAction, given: GivenByUrl | None = None) -> Callable[..., Response]:
    """Return the ``post`` method of a view that runs an action; ``given`` reads targets from the view's URL."""
    of_url = given or {}

    def post(view: APIView, request: Request, **kwargs: Any) -> Response:
        actor = f"credential:{credential_of(request).name}"
        values, order = read_body(request.data, action, actor, {name: read(view) for name, read in of_url.items()})
        return Response(outcome_json(action.apply(values, order)))

    return extend_schema(
        operation_id=action.operation,
        description=action.about,
        request=request_serializer(action, tuple(of_url)),
        responses={200: action.outcome, **ERRORS, **({409: ErrorSerializer} if action.may_conflict else {})},
    )(post)


def action_path(action: OperatorAction, address: str = "") -> URLPattern:
    """Return the URL of an endpoint that only runs an action; by default ``operations/NAME``."""
    about = {"permission_classes": [action.permission], "post": post_action(action), "__doc__": action.about}
    view: type[APIView] = type(f"{action.operation}_view", (APIView,), about)
    address = address or f"operations/{action.operation.replace('_', '-')}"
    return path(address, view.as_view(), name=address.removeprefix("operations/").replace("/", "-"))
