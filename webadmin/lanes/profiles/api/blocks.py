"""The index over HTTP: writers register blocks, readers query their locations."""

from __future__ import annotations

from typing import IO, Any

from django.conf import settings
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from engine.storage import cached_store
from webadmin.base import request_bounds
from webadmin.base.access.scopes import ANY_TENANT, MayAddBlocks, MayQueryBlocks, credential_of, listed_tenants
from webadmin.base.database.durability import check_durable
from webadmin.base.error_answers import ErrorSerializer
from webadmin.lanes.profiles.api.query_messages import answer_to_json, cursor_from_json, page_to_json, query_from_json
from webadmin.lanes.profiles.api.serializers import (
    AddBlocksResponseSerializer,
    BlockQueryRequestSerializer,
    BlockQueryResponseSerializer,
)
from webadmin.lanes.profiles.block_list import CONTENT_TYPE
from webadmin.lanes.profiles.queries import find_blocks, find_page, unknown_tenants
from webadmin.lanes.profiles.services.take_block_list import take_block_list

ADD_ERRORS = dict.fromkeys((400, 401, 403, 413, 415, 503), ErrorSerializer)
QUERY_ERRORS = dict.fromkeys((400, 401, 403, 409, 413, 415), ErrorSerializer)
BLOCK_LIST_BYTES_MAX = 32 << 20
"""500 blocks of 64 KiB of metadata each, far more than segments have."""


class BlockListParser(BaseParser):
    """Parser that returns the bytes of a protobuf BlockMetaList, of at most BLOCK_LIST_BYTES_MAX."""

    media_type = CONTENT_TYPE

    def parse(self, stream: IO[bytes], media_type: str | None = None, parser_context: Any = None) -> Any:
        body = stream.read(BLOCK_LIST_BYTES_MAX + 1)
        if len(body) > BLOCK_LIST_BYTES_MAX:
            raise request_bounds.BodyTooLarge(
                f"the request body is larger than {BLOCK_LIST_BYTES_MAX} bytes: send fewer blocks per call"
            )
        return body


class AddBlocksView(APIView):
    """Registers blocks whose objects are in the store already."""

    permission_classes = [MayAddBlocks]
    parser_classes = [BlockListParser]

    @extend_schema(
        operation_id="add_blocks",
        request={CONTENT_TYPE: OpenApiTypes.BINARY},
        responses={200: AddBlocksResponseSerializer, **ADD_ERRORS},
    )
    def post(self, request: Request) -> Response:
        """Add up to 500 blocks (a protobuf `BlockMetaList`); each is answered by itself, in the order sent."""
        check_durable()
        body = request.data if isinstance(request.data, bytes) else b""  # a request without a body has no bytes
        taken = take_block_list(
            body,
            actor=f"credential:{credential_of(request).name}",
            store=cached_store(settings.OBJECT_STORE_URL),
            tenants=listed_tenants(credential_of(request)) - {ANY_TENANT},
        )
        return Response(taken.to_json())


class QueryBlocksView(APIView):
    """Tells readers which datasets of which blocks to read."""

    permission_classes = [MayQueryBlocks]

    @extend_schema(
        operation_id="query_blocks",
        request=BlockQueryRequestSerializer,
        responses={200: BlockQueryResponseSerializer, **QUERY_ERRORS},
    )
    def post(self, request: Request) -> Response:
        """Find the blocks with matching datasets of the credential's tenants, by tenant, shard and id.

        With `cursor` the answer comes in pages: send "" for the first, then `next` of the page before until it is "".
        """
        query = query_from_json(request.data, listed_tenants(credential_of(request)))
        cursor = cursor_from_json(request.data)
        if cursor is None:
            return Response(answer_to_json(find_blocks(query), unknown_tenants(query.tenants)))
        return Response(page_to_json(find_page(query, cursor), unknown_tenants(query.tenants)))
