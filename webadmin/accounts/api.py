"""Credentials over HTTP: list, create, rotate, set the expiry, revoke; the same services as in admin and commands.

The scope ``credentials:manage`` can issue every other scope, so it is as powerful as an administrator.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.views import APIView

from engine.protocol.fields import Fields
from webadmin.base.access.credential_changes import (
    OVERLAP_DEFAULT,
    OVERLAP_MAX,
    create_credential,
    describe_credential,
    revoke_credential,
    rotate_credential,
    set_credential_expiry,
)
from webadmin.base.access.models import CREDENTIAL_NAME_MAX, WorkerCredential
from webadmin.base.access.queries import credential_warning
from webadmin.base.access.scopes import MayManageCredentials
from webadmin.schedule.api import operation_messages as messages
from webadmin.schedule.api.operation_serializers import OrderSerializer
from webadmin.schedule.api.worker_serializers import ErrorSerializer
from webadmin.schedule.services.operation import Order

ERRORS = dict.fromkeys((400, 401, 403, 404, 409), ErrorSerializer)
ROWS_MAX = 1000
SCOPES_MAX = 100
SCOPE_LENGTH_MAX = 200
MOMENT_LENGTH_MAX = 40


class CredentialSerializer(serializers.Serializer[Any]):
    """A credential without its secrets."""

    name = serializers.CharField()
    key_id = serializers.CharField(help_text="the first part of the secret, which is no secret")
    scopes = serializers.ListField(child=serializers.CharField())
    created_at = serializers.DateTimeField(allow_null=True)
    last_used_at = serializers.DateTimeField(allow_null=True)
    previous_valid_until = serializers.DateTimeField(allow_null=True, help_text="end of the replaced secret")
    expires_at = serializers.DateTimeField(allow_null=True)
    revoked_at = serializers.DateTimeField(allow_null=True)


class ListedCredentialSerializer(CredentialSerializer):
    """A credential in a list."""

    warning = serializers.CharField(allow_blank=True, help_text="expires soon, expired, or empty")


class CredentialListSerializer(serializers.Serializer[Any]):
    credentials = ListedCredentialSerializer(many=True)


class CredentialOutcomeSerializer(serializers.Serializer[Any]):
    """What was done. The secret is in this answer only."""

    action = serializers.CharField()
    dry_run = serializers.BooleanField()
    secret = serializers.CharField(required=False)
    access_key_id = serializers.CharField(required=False, help_text="of a credential with catalog:read")
    secret_access_key = serializers.CharField(required=False)
    credentials = CredentialSerializer(many=True)
    notes = serializers.ListField(child=serializers.CharField())


class NamedSerializer(OrderSerializer):
    """Which credential is meant."""

    name = serializers.CharField()


class CreateCredentialSerializer(NamedSerializer):
    """A credential to make."""

    scopes = serializers.ListField(child=serializers.CharField())
    expires_at = serializers.DateTimeField(required=False, allow_null=True)


class RotateCredentialSerializer(NamedSerializer):
    """A credential that gets a new secret."""

    overlap_seconds = serializers.IntegerField(required=False, help_text="the old secret is accepted so long")


class ExpireCredentialSerializer(NamedSerializer):
    """A credential and its new end."""

    expires_at = serializers.DateTimeField(allow_null=True, help_text="null: never")


class CredentialView(APIView):
    """Everything here needs the scope ``credentials:manage``."""

    permission_classes = [MayManageCredentials]

    def read(self, shape: type[Serializer[Any]]) -> tuple[str, Fields, Order]:
        """Return the credential's name, the body's fields, and the actor, reason and dry-run flag."""
        fields, order = messages.read_order(self.request, shape)
        return fields.text("name", CREDENTIAL_NAME_MAX, empty=False), fields, order


class CredentialsView(CredentialView):
    """Credentials in use, and creating one."""

    @extend_schema(
        operation_id="list_credentials",
        parameters=[OpenApiParameter("after", str, description="only names after this one")],
        responses={200: CredentialListSerializer, **ERRORS},
    )
    def get(self, request: Request) -> Response:
        """List the credentials in use by name, at most 1000 per answer."""
        rows = WorkerCredential.objects.filter(revoked_at=None, name__gt=request.query_params.get("after", ""))
        now = timezone.now()
        credentials = [describe_credential(row) | {"warning": credential_warning(row, now)} for row in rows[:ROWS_MAX]]
        return Response({"credentials": credentials})

    @extend_schema(
        operation_id="create_credential",
        request=CreateCredentialSerializer,
        responses={200: CredentialOutcomeSerializer, **ERRORS},
    )
    def post(self, request: Request) -> Response:
        """Make a credential; an access key of the catalog is one with catalog scopes and one tenant."""
        name, fields, order = self.read(CreateCredentialSerializer)
        scopes = [
            Fields("$.scopes", {"item": scope}).text("item", SCOPE_LENGTH_MAX, empty=False)
            for scope in fields.items("scopes", SCOPES_MAX)
        ]
        outcome = create_credential(
            name=name,
            scopes=scopes,
            expires_at=_moment(fields, "expires_at"),
            **_asked(order),
        )
        return Response(outcome.to_json())


class RotateView(CredentialView):
    """A new secret for a credential."""

    @extend_schema(
        operation_id="rotate_credential",
        request=RotateCredentialSerializer,
        responses={200: CredentialOutcomeSerializer, **ERRORS},
    )
    def post(self, request: Request) -> Response:
        """Replace the secret; the old one is accepted for a day more unless ``overlap_seconds`` is set."""
        name, fields, order = self.read(RotateCredentialSerializer)
        seconds = fields.integer(
            "overlap_seconds", 0, int(OVERLAP_MAX.total_seconds()), default=int(OVERLAP_DEFAULT.total_seconds())
        )
        return Response(rotate_credential(name=name, overlap=timedelta(seconds=seconds), **_asked(order)).to_json())


class ExpireView(CredentialView):
    """When a credential expires."""

    @extend_schema(
        operation_id="expire_credential",
        request=ExpireCredentialSerializer,
        responses={200: CredentialOutcomeSerializer, **ERRORS},
    )
    def post(self, request: Request) -> Response:
        """Set until when a credential is accepted; null takes the end back."""
        name, fields, order = self.read(ExpireCredentialSerializer)
        if "expires_at" not in fields.values:
            raise fields.error("expires_at", "a moment is expected, or null to take it back")
        return Response(
            set_credential_expiry(name=name, expires_at=_moment(fields, "expires_at"), **_asked(order)).to_json()
        )


class RevokeView(CredentialView):
    """The end of a credential."""

    @extend_schema(
        operation_id="revoke_credential",
        request=NamedSerializer,
        responses={200: CredentialOutcomeSerializer, **ERRORS},
    )
    def post(self, request: Request) -> Response:
        """Revoke a credential for good; access ends within 30 seconds and the name becomes free."""
        name, _, order = self.read(NamedSerializer)
        return Response(revoke_credential(name=name, **_asked(order)).to_json())


def _asked(order: Order) -> dict[str, Any]:
    return {"actor": order.actor, "why": order.why, "is_dry_run": order.is_dry_run}


def _moment(fields: Fields, name: str) -> datetime | None:
    if fields.values.get(name) is None:
        return None
    try:
        found = datetime.fromisoformat(fields.text(name, MOMENT_LENGTH_MAX))
    except ValueError as error:
        raise fields.error(name, "a date and time in ISO 8601 is expected") from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)
