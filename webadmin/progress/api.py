"""Explanations and progress over HTTP, for credentials that may read or operate."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from webadmin.base.access.models import WorkerCredential
from webadmin.base.access.scopes import SCOPE_READ, confined_words, is_for_everybody
from webadmin.base.error_answers import ErrorSerializer
from webadmin.progress.report import WINDOW_SECONDS, WINDOW_SECONDS_MAX, progress_report
from webadmin.progress.serializers import BacklogSerializer, ExplanationsSerializer
from webadmin.schedule.explain import explain_name

READING_SCOPES = (SCOPE_READ, "operate")
ERRORS = dict.fromkeys((400, 401, 403, 404), ErrorSerializer)


class MayRead(BasePermission):
    """The caller may read the schedule of all tenants."""

    message = f"the credential lacks the scope {SCOPE_READ}"
    code = "scope_missing"

    def has_permission(self, request: Request, view: object) -> bool:
        user = request.user
        if not isinstance(user, WorkerCredential) or not any(user.has_scope(scope) for scope in READING_SCOPES):
            return False
        if not is_for_everybody(user):
            self.message = confined_words(user)
            return False
        return True


class ExplainView(APIView):
    """Where a block or job is, why, and what would change it."""

    permission_classes = [MayRead]

    @extend_schema(operation_id="explain", responses={200: ExplanationsSerializer, **ERRORS})
    def get(self, request: Request, name: str) -> Response:
        """Explain the block id, job name or object key."""
        return Response({"explanations": [found.to_json() for found in explain_name(name)]})


class _WindowSerializer(serializers.Serializer[Any]):
    window_seconds = serializers.IntegerField(
        min_value=60, max_value=WINDOW_SECONDS_MAX, required=False, default=WINDOW_SECONDS
    )


class ProgressView(APIView):
    """How far compaction is behind, and when it will have caught up."""

    permission_classes = [MayRead]

    @extend_schema(
        operation_id="progress",
        parameters=[OpenApiParameter("window_seconds", OpenApiTypes.INT, description="over which rates are taken")],
        responses={200: BacklogSerializer, **ERRORS},
    )
    def get(self, request: Request) -> Response:
        """Return backlog, rates and outlook per tenant and level, per shard and in all."""
        window = _WindowSerializer(data=request.query_params)
        window.is_valid(raise_exception=True)
        return Response(progress_report(**window.validated_data).to_json())
