"""``push.v1.PusherService/Push``: pushes of SDKs, Alloy and the command-line client.

Source: profile API format sheet, sections 1 and 2.
"""

from __future__ import annotations

import time

from django.http import HttpRequest

from engine.formats.proto.push_pb2 import PushResponse
from engine.ingest.push import decode_push
from webadmin.base.connect import Call, ConnectError, Gate, unary
from webadmin.base.push_rejected import PushRejected
from webadmin.base.senders import Sender
from webadmin.ingest.distributor import PUSH_SECONDS
from webadmin.ingest.receive import body_limit, count_unread, identify, receive


def _body_bytes_max(sender: Sender) -> int:
    """Return the body limit: the tenant's limit is for the sum of its profiles, which JSON encodes in 4 bytes for 3."""
    return 2 * body_limit(sender) + (1 << 20)


def _admit(request: HttpRequest) -> Sender:
    try:
        return identify(request)
    except PushRejected as error:
        raise ConnectError(error.code, error.message, reason=error.reason) from error


def _push(call: Call) -> PushResponse:
    deadline = time.monotonic() + call.seconds_left(PUSH_SECONDS)
    try:
        receive(
            call.sender,
            len(call.body),
            lambda limits, now_ns: decode_push(call.body, is_json=call.is_json, limits=limits, now_ns=now_ns),
            deadline=deadline,
        )
    except PushRejected as error:
        raise ConnectError(error.code, error.message, reason=error.reason) from error
    return PushResponse()


push = unary(_push, Gate(admit=_admit, body_bytes_max=_body_bytes_max, count=count_unread))
