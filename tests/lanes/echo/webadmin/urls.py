"""The REST API of text files."""

from __future__ import annotations

from typing import Any

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from tests.lanes.echo.engine.jobs import Text
from tests.lanes.echo.webadmin.models import TextFile
from tests.lanes.echo.webadmin.services import VISIBLE, register_texts
from webadmin.base.access.scopes import MayAddBlocks


class TextShape(serializers.Serializer):
    """A file in the object store."""

    key = serializers.CharField()
    size = serializers.IntegerField(min_value=0)


class FolderShape(serializers.Serializer):
    """Files of a folder, in sequence."""

    texts = TextShape(many=True)


class FolderView(APIView):
    """The files of a folder."""

    permission_classes = [MayAddBlocks]

    @extend_schema(responses={200: FolderShape})
    def get(self, request: Request, tenant: str, folder: str) -> Response:
        """Return the files that readers see."""
        rows = TextFile.objects.filter(tenant=tenant, folder=folder, state__in=VISIBLE).order_by("position")
        return Response({"texts": [{"key": row.key, "size": row.size_bytes} for row in rows]})

    @extend_schema(request=FolderShape, responses={200: FolderShape})
    def post(self, request: Request, tenant: str, folder: str) -> Response:
        """Register files at the end of a folder; files that are known already are ignored."""
        shape = FolderShape(data=request.data)
        shape.is_valid(raise_exception=True)
        told: dict[str, Any] = shape.validated_data
        register_texts(tenant, folder, [Text(text["key"], text["size"]) for text in told["texts"]])
        return self.get(request, tenant, folder)


urlpatterns = [path("echo/<str:tenant>/<str:folder>", FolderView.as_view(), name="echo-folder")]
