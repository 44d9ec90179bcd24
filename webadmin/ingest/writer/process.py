"""Lifecycle of a writer process: listen, register, accept pushes; on SIGTERM reject, flush, deregister, exit."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import uvicorn
import uvloop

from engine.core.version import VERSION
from engine.storage.model import ObjectStore
from webadmin.base.database import durability
from webadmin.ingest.writer.http import WriterSite
from webadmin.ingest.writer.measures import WriterMeasures
from webadmin.ingest.writer.membership import HEARTBEAT_SECONDS, Membership
from webadmin.ingest.writer.segment_writer import SegmentWriter, WriterLimits
from webadmin.placement.services.instances import Registration
from webadmin.schedule.history_check import check_history
from webadmin.serving.deadline_protocol import DeadlineProtocol
from webadmin.serving.signal_free_server import SignalFreeServer

log = logging.getLogger(__name__)

LEAVE_SECONDS = 5.0
KEEP_ALIVE_SECONDS = 75
"""Longer than distributors keep idle connections, so that the client always closes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterOptions:
    """Options of a writer process. Without ``address`` it is the listening address; ``name`` "" is host and port."""

    host: str = "127.0.0.1"
    port: int = 0
    name: str = ""
    address: str = ""
    zone: str = ""
    tokens: int = 4
    limits: WriterLimits = field(default_factory=WriterLimits)


def run_writer(options: WriterOptions, store: ObjectStore) -> None:
    """Run until SIGTERM or SIGINT. Raises OSError if the port is in use."""
    with socket.create_server((options.host, options.port), backlog=1024) as listener:
        host, port = listener.getsockname()[:2]
        registration = Registration(
            name=options.name or f"{socket.gethostname()}-{port}",
            address=options.address or f"http://{host}:{port}",
            zone=options.zone,
            tokens=options.tokens,
            build=VERSION,
        )
        registration.check()
        check_history()
        life = _Life(registration, store, options.limits)
        gc.collect()
        gc.freeze()  # Exclude loaded modules from garbage collection.
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(life.run(listener))


class _Life:
    """The components of a running writer."""

    def __init__(self, registration: Registration, store: ObjectStore, limits: WriterLimits) -> None:
        self._registration = registration
        measures = WriterMeasures()
        self._writer = SegmentWriter(registration.name, store, limits, measures)
        self._membership = Membership(registration, store, store_error=lambda: self._writer.store_error)
        self._registry = ThreadPoolExecutor(1, "registry")
        self._stopping = asyncio.Event()
        site = WriterSite(registration.name, self._writer, measures, self._problems)
        self._server = SignalFreeServer(
            uvicorn.Config(
                site,
                http=DeadlineProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=round(LEAVE_SECONDS),
            )
        )
        measures.read("lithify_writer_held_bytes", lambda: float(self._writer.held_bytes))
        measures.read("lithify_writer_index_away", lambda: float(self._writer.is_index_away))
        measures.read("lithify_writer_registered", lambda: float(self._membership.is_registered))

    async def run(self, listener: socket.socket) -> None:
        """Serve until a stop is requested, then flush and deregister."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        serving = loop.create_task(self._server.serve(sockets=[listener]))
        beating = loop.create_task(self._keep_membership())
        stop_requested = loop.create_task(self._stopping.wait())
        await asyncio.wait({serving, beating, stop_requested}, return_when=asyncio.FIRST_COMPLETED)
        stop_requested.cancel()
        log.info("writer_draining name=%s", self._registration.name)
        self._writer.is_draining = True
        beating.cancel()
        leaving_call = loop.run_in_executor(self._registry, self._membership.leave)
        await self._writer.drain()
        await asyncio.wait({leaving_call}, timeout=LEAVE_SECONDS)
        self._server.should_exit = True
        await serving
        if beating.done() and not beating.cancelled():
            beating.result()  # An unexpected error ends the process, after everything was stored.
        log.info("writer_stopped name=%s", self._registration.name)

    async def _keep_membership(self) -> None:
        loop = asyncio.get_running_loop()
        was_registered = False
        while not self._stopping.is_set():
            started = loop.time()
            if await loop.run_in_executor(self._registry, self._membership.beat):
                self._writer.index_answers()
            if self._membership.is_registered and not was_registered:
                was_registered = True
                log.info("writer_ready name=%s address=%s", self._registration.name, self._registration.address)
            if self._membership.is_leave_requested:
                self._stopping.set()
            await asyncio.sleep(max(0.05, HEARTBEAT_SECONDS - (loop.time() - started)))

    def _problems(self) -> list[str]:
        found = []
        if self._writer.is_draining:
            found.append("it is shutting down")
        if unsafe := durability.refusal():
            found.append(unsafe)
        if not self._membership.is_registered:
            found.append("it is not registered; the database may be away")
        return found
