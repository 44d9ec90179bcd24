"""Parse an OTLP profiles request from protobuf or JSON and validate the references of its dictionary.

Source: ``docs/reference/formats/profile-api.md``, "OTLP". Index 0 of every table means unset. OTLP JSON encodes ids of
traces, spans and profiles in hexadecimal instead of base64.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable

from google.protobuf import json_format
from google.protobuf.message import DecodeError

from engine.formats.proto import otlp_profiles_pb2 as otlp
from engine.ingest.message_bounds import check_json, check_message
from engine.ingest.model import Refused
from engine.ingest.segments.normalise import FRAMES_MAX

REASON = "malformed_request"
PROFILES_MAX = 1_000
"""Maximum profiles of a request; a collector sends one per resource and kind."""
FIELDS_MAX, JSON_OBJECTS_MAX = 2_000_000, 50_000
"""Limits of a request; its dictionary has several fields per frame."""


def parse_request(body: bytes, *, is_json: bool) -> otlp.ExportRequest:
    """Parse and validate a request. Raises Refused for an invalid request or a reference outside the dictionary."""
    request = otlp.ExportRequest()
    try:
        if is_json:
            check_json(body, objects_max=JSON_OBJECTS_MAX)
            json_format.ParseDict(_with_base64_ids(json.loads(body)), request, ignore_unknown_fields=True)
        else:
            check_message(body, request.DESCRIPTOR, first_max=PROFILES_MAX, fields_max=FIELDS_MAX)
            request.ParseFromString(body)
    except (DecodeError, json_format.ParseError, ValueError, RecursionError, TypeError, AttributeError) as error:
        raise Refused(REASON, f"the body is not an OTLP profiles request: {error}") from error
    profiles = sum(len(scope.profiles) for resource in request.resource_profiles for scope in resource.scope_profiles)
    if profiles > PROFILES_MAX:
        raise Refused(REASON, f"{profiles} profiles in one request, the limit is {PROFILES_MAX}")
    _check_dictionary(request.dictionary)
    return request


def _with_base64_ids(document: object) -> dict[str, object]:
    if not isinstance(document, dict):
        raise TypeError("the body is not an object")
    dictionary = document.get("dictionary") or {}
    for link in dictionary.get("linkTable") or dictionary.get("link_table") or ():
        _recode(link, ("traceId", "trace_id", "spanId", "span_id"))
    for resource in document.get("resourceProfiles") or document.get("resource_profiles") or ():
        for scope in resource.get("scopeProfiles") or resource.get("scope_profiles") or ():
            for profile in scope.get("profiles") or ():
                _recode(profile, ("profileId", "profile_id"))
    return document


def _recode(owner: dict[str, object], names: Iterable[str]) -> None:
    for name in names:
        if isinstance(owner.get(name), str):
            owner[name] = base64.b64encode(bytes.fromhex(str(owner[name]))).decode()


def _check_dictionary(tables: otlp.Dictionary) -> None:
    strings = len(tables.string_table)
    if strings and tables.string_table[0]:
        raise Refused(REASON, "string 0 of the dictionary is not empty")
    _check("function", strings, "string", _function_strings(tables))
    _check("mapping", strings, "string", (one.filename_strindex for one in tables.mapping_table))
    _check("attribute", strings, "string", (one.key_strindex for one in tables.attribute_table))
    _check("location", len(tables.mapping_table), "mapping", (one.mapping_index for one in tables.location_table))
    lines = (line.function_index for one in tables.location_table for line in one.lines)
    _check("location", len(tables.function_table), "function", lines)
    stacks = [stack.location_indices for stack in tables.stack_table if stack.location_indices]
    if (frames := sum(map(len, stacks))) > FRAMES_MAX:
        raise Refused(REASON, f"the stacks of the dictionary have {frames} frames, the limit is {FRAMES_MAX}")
    extremes = (index for stack in stacks for index in (min(stack), max(stack)))
    _check("stack", len(tables.location_table), "location", extremes)


def _function_strings(tables: otlp.Dictionary) -> Iterable[int]:
    for one in tables.function_table:
        yield from (one.name_strindex, one.system_name_strindex, one.filename_strindex)


def _check(owner: str, count: int, kind: str, indexes: Iterable[int]) -> None:
    """Raise Refused for an index outside its table; 0 is unset and valid."""
    for index in indexes:
        if not 0 <= index < max(count, 1):
            raise Refused(REASON, f"a {owner} of the dictionary names {kind} {index}, there are {count}")
