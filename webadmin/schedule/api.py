"""The worker protocol over HTTP."""

from __future__ import annotations

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from engine.protocol.wire import request_from_wire, response_to_wire
from webadmin.access.authentication import MayPoll
from webadmin.schedule.serializers import ErrorSerializer, PollRequestSerializer, PollResponseSerializer
from webadmin.schedule.services import poll

ERRORS = dict.fromkeys((400, 401, 403, 409, 413, 415, 503), ErrorSerializer)


class PollView(APIView):
    """One request of a worker carries its reports, its lease renewals and its wish for new jobs."""

    permission_classes = [MayPoll]

    @extend_schema(
        operation_id="poll_jobs", request=PollRequestSerializer, responses={200: PollResponseSerializer, **ERRORS}
    )
    def post(self, request: Request) -> Response:
        """Settle reports, renew leases, assign up to `capacity` jobs."""
        message = request_from_wire(request.data)
        response = poll(request=message, credential=request.user, at=timezone.now())
        return Response(response_to_wire(response))
