"""The worker protocol over HTTP."""

from __future__ import annotations

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from engine.protocol.errors import InvalidToken
from engine.protocol.messages import PollRequest
from engine.protocol.wire import request_from_wire, response_to_wire
from webadmin.base.access.authentication import MayPoll
from webadmin.base.access.refusals import count_refused_requests
from webadmin.base.access.scopes import credential_of
from webadmin.base.error_answers import ErrorSerializer
from webadmin.schedule.api.worker_serializers import PollRequestSerializer, PollResponseSerializer
from webadmin.schedule.polls.view import token_codec
from webadmin.schedule.services import poll

ERRORS = dict.fromkeys((400, 401, 403, 409, 413, 415, 503), ErrorSerializer)


class PollView(APIView):
    """One request of a worker carries its reports, its lease renewals and its wish for new jobs."""

    permission_classes = [MayPoll]
    throttle_classes = ()

    @extend_schema(
        operation_id="poll_jobs", request=PollRequestSerializer, responses={200: PollResponseSerializer, **ERRORS}
    )
    def post(self, request: Request) -> Response:
        """Settle reports, renew leases, assign up to `capacity` jobs."""
        message = request_from_wire(request.data)
        credential = credential_of(request)
        response = poll(request=message, credential=credential, at=timezone.now())
        if forged := _forged_reports(message, credential.key_id):
            count_refused_requests(forged, actor=f"credential:{credential.name}")
        return Response(response_to_wire(response))


def _forged_reports(message: PollRequest, credential: str) -> list[tuple[str, str]]:
    """Return the reports whose tokens were never issued to this credential; they changed nothing, but must be reported.

    Issued tokens that are stale are normal.
    """
    codec, found = token_codec(), []
    for update in message.updates:
        try:
            codec.decode(update.token, job=update.job, credential=credential)
        except InvalidToken as error:
            found.append((error.code, f"worker {message.worker}, job {update.job}: {error}"))
    return found
