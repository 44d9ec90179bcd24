"""Branch protection rules: block staged writes and commits."""

from __future__ import annotations

from django.http import HttpResponse

from engine.protocol.fields import Fields
from webadmin.lanes.catalog.api.answers import answer, nothing
from webadmin.lanes.catalog.api.calls import Call
from webadmin.lanes.catalog.api.errors import RequestRefused
from webadmin.lanes.catalog.api.request_bodies import body_of, json_of
from webadmin.lanes.catalog.services.protection import read_protection, write_protection


def read(call: Call) -> HttpResponse:
    """List the patterns of protected branches; a change can be made conditional on the ETag."""
    rules, checksum = read_protection(call.repository)
    response = answer([{"pattern": rule["pattern"]} for rule in rules])
    response.headers["ETag"] = checksum
    return response


def write(call: Call) -> HttpResponse:
    """Replace the patterns; matching branches accept neither staged writes nor commits, only merges."""
    data = json_of(body_of(call.request))
    if not isinstance(data, list):
        raise RequestRefused("a list of rules is expected")
    rules = [Fields.of(rule, f"$[{number}]").values for number, rule in enumerate(data)]
    match = call.request.headers.get("If-Match")
    write_protection(
        call.repository,
        [{"pattern": rule.get("pattern")} for rule in rules],
        if_checksum=match.strip().strip('"') if match else None,
        context=call.order,
    )
    return nothing()
