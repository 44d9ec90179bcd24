"""Limits on request bodies that apply before their content is parsed."""

from __future__ import annotations

import json
from typing import Any

from rest_framework.exceptions import APIException, ParseError
from rest_framework.parsers import BaseParser

from webadmin.base.compressed_bodies import Readable

BODY_BYTES_MAX = 64 << 20
"""Sufficient for a full report: a thousand jobs' results with the metadata of their blocks."""


class BodyTooLarge(APIException):
    """The request body exceeds the limit."""

    status_code = 413
    default_code = "body_too_large"
    default_detail = f"the request body is larger than {BODY_BYTES_MAX} bytes: report fewer jobs per poll"


class BoundedJSONParser(BaseParser):
    """JSON of at most BODY_BYTES_MAX bytes; NaN and infinities, which are not JSON, are rejected."""

    media_type = "application/json"

    def parse(self, stream: Readable, media_type: str | None = None, parser_context: Any = None) -> Any:
        try:
            body = stream.read(BODY_BYTES_MAX + 1)
        except OSError as error:  # the client disconnected, or was too slow
            raise ParseError(f"the body breaks off: {error}") from error
        if len(body) > BODY_BYTES_MAX:
            raise BodyTooLarge
        try:
            return json.loads(body, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise ParseError(f"the body is not JSON: {error}") from error


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
