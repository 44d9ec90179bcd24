"""Keep a writer registered: send a heartbeat each second, re-register after expiry, publish the ring.

While the database is unavailable the writer accepts pushes and stays in the ring that distributors have.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from django.conf import settings
from django.db import Error as AnyDatabaseError
from django.db import close_old_connections

from engine.core.errors import LithifyError
from engine.storage.model import ObjectStore
from webadmin.base.database.database_clock import read_database_clock
from webadmin.placement.services.instances import (
    HeartbeatAnswer,
    Registration,
    heartbeat,
    leave,
    register_instance,
    settle_ring,
)
from webadmin.placement.services.read_ring import publish_current_ring

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 1.0
PUBLISH_SECONDS = 10.0
"""Seconds between two comparisons of the ring in the object store; a changed ring is written at once."""


class Membership:
    """Registration of one instance. Methods block, and are called from one thread at a time."""

    def __init__(
        self,
        registration: Registration,
        store: ObjectStore,
        clock: Callable[[], float] = time.monotonic,
        store_error: Callable[[], str] = lambda: "",
    ) -> None:
        """Initialise; ``store_error`` returns the error of the last attempt to store segments, "" without one."""
        self.is_registered = False
        self.is_leave_requested = False
        self._registration = registration
        self._store = store
        self._clock = clock
        self._store_error = store_error
        self._in_reach_since: float | None = None
        self._last_beat = 0.0
        self._publish_at = 0.0
        self._published_version = -1

    def beat(self) -> bool:
        """Send one heartbeat and apply its response; return whether the database was reachable.

        Outages of the database or object store raise no error.
        """
        close_old_connections()
        try:
            self._report()
        except AnyDatabaseError as error:
            self._in_reach_since = None
            log.warning("heartbeat_failed error=%s", error)
            return False
        except LithifyError as error:
            log.warning("ring_not_settled_or_published error=%s", error)
        finally:
            close_old_connections()
        return True

    def leave(self) -> None:
        """Deregister the instance; without this it expires after the timeout."""
        close_old_connections()
        try:
            leave(self._registration.name)
            publish_current_ring(self._store)
        except (AnyDatabaseError, LithifyError) as error:
            log.warning("goodbye_failed error=%s", error)
        finally:
            self.is_registered = False
            close_old_connections()

    def _report(self) -> None:
        read_database_clock()
        answer = HeartbeatAnswer.UNKNOWN
        if self.is_registered:
            answer = heartbeat(self._registration.name, store_error=self._store_error())
        if answer is HeartbeatAnswer.UNKNOWN:
            version = register_instance(self._registration).version
            self.is_registered = True
            log.info("instance_registered name=%s ring=%d", self._registration.name, version)
        elif answer is HeartbeatAnswer.LEAVING:
            self.is_leave_requested = True
        self._note_reach()
        if self._has_seen_others():
            version = settle_ring().version
        elif answer is not HeartbeatAnswer.UNKNOWN:
            return
        self._publish(version)

    def _note_reach(self) -> None:
        """Restart the observation period after a pause of this process or an outage of the database."""
        now = self._clock()
        if self._in_reach_since is None or now - self._last_beat > settings.WRITER_SUSPECT_SECONDS:
            self._in_reach_since = now
        self._last_beat = now

    def _has_seen_others(self) -> bool:
        """Return whether the database was reachable long enough for the other instances to send heartbeats.

        Before that, all of them would look expired.
        """
        assert self._in_reach_since is not None
        suspect_seconds: float = settings.WRITER_SUSPECT_SECONDS
        return self._clock() - self._in_reach_since >= suspect_seconds

    def _publish(self, version: int) -> None:
        now = self._clock()
        if version > self._published_version or now >= self._publish_at:
            self._publish_at = now + PUBLISH_SECONDS
            publish_current_ring(self._store)
            self._published_version = version
