"""Rate limit of requests: a token bucket per credential and process.

Polls of workers are exempt: a rejected poll would put leases at risk. Pushes are limited by bytes per tenant instead.
"""

from __future__ import annotations

import math
import threading
import time

from django.conf import settings
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from webadmin.base.access.models import WorkerCredential

BURST_SECONDS = 10
"""An idle credential may send this many seconds' worth of requests at once."""
CREDENTIALS_MAX = 10_000


class RequestRates:
    """The token buckets of all credentials; shared by the threads of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, name: str, now: float) -> int:
        """Count a request; return after how many seconds it may be sent again, 0 if it is within the rate.

        ``now`` is a reading of ``time.monotonic``. A rate of 0 in the settings disables the limit.
        """
        rate = settings.CREDENTIAL_REQUESTS_PER_SECOND
        if not rate:
            return 0
        burst = max(1.0, rate * BURST_SECONDS)
        with self._lock:
            tokens, since = self._buckets.pop(name, (burst, now))
            tokens = min(burst, tokens + (now - since) * rate)
            wait = 0 if tokens >= 1 else math.ceil((1 - tokens) / rate)
            if len(self._buckets) >= CREDENTIALS_MAX:
                del self._buckets[next(iter(self._buckets))]  # least recently used, so its bucket is full
            self._buckets[name] = (tokens if wait else tokens - 1, now)
        return wait


rates = RequestRates()


def seconds_to_wait(name: str) -> int:
    """Count a request of a credential in this process; return the seconds to wait, 0 if it is within the rate."""
    return rates.take(name, time.monotonic())


class CredentialThrottle(BaseThrottle):
    """Answer 429 with Retry-After to a credential that exceeds its rate."""

    def __init__(self) -> None:
        self._wait = 0

    def allow_request(self, request: Request, view: object) -> bool:
        if isinstance(request.user, WorkerCredential):
            self._wait = seconds_to_wait(request.user.name)
        return not self._wait

    def wait(self) -> float:
        return float(self._wait)
