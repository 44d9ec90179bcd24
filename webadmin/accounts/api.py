"""Credentials over HTTP.

The scope ``credentials:manage`` can issue every other scope, so it is as powerful as an administrator.
"""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from webadmin.accounts.credential_actions import CREATE, CredentialSerializer
from webadmin.base.access.credential_changes import describe_credential
from webadmin.base.access.models import WorkerCredential
from webadmin.base.access.queries import credential_warning
from webadmin.base.access.scopes import MayManageCredentials
from webadmin.base.actions.api import ERRORS, post_action

ROWS_MAX = 1000


class ListedCredentialSerializer(CredentialSerializer):
    """A credential in a list."""

    warning = serializers.CharField(allow_blank=True, help_text="expires soon, expired, or empty")


class CredentialListSerializer(serializers.Serializer[Any]):
    credentials = ListedCredentialSerializer(many=True)


class CredentialsView(APIView):
    """Credentials in use, and creating one."""

    permission_classes = [MayManageCredentials]
    post = post_action(CREATE)

    @extend_schema(
        operation_id="list_credentials",
        parameters=[OpenApiParameter("after", str, description="only names after this one")],
        responses={200: CredentialListSerializer, **ERRORS},
    )
    def get(self, request: Request) -> Response:
        """List the credentials in use by name, at most 1000 per response."""
        rows = WorkerCredential.objects.filter(revoked_at=None, name__gt=request.query_params.get("after", ""))
        now = timezone.now()
        listed = [describe_credential(row) | {"warning": credential_warning(row, now)} for row in rows[:ROWS_MAX]]
        return Response({"credentials": listed})
