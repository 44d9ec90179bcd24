"""A worker process of gunicorn that serves a WSGI application by WsgiBridge over DeadlineProtocol."""

from __future__ import annotations

import asyncio
import os
import resource
import signal

import uvicorn
import uvloop
from gunicorn import sock
from gunicorn.workers.base import Worker

from webadmin.serving.deadline_protocol import DeadlineProtocol
from webadmin.serving.routes import ALIVE, HEALTH, POLLS, REQUESTS, STREAMING, UPLOADS, route_of
from webadmin.serving.signal_free_server import SignalFreeServer
from webadmin.serving.wsgi_bridge import WsgiBridge

CONNECTIONS_MAX = 16_384
"""Limit of open files that a process requests: a slow connection occupies one until its deadline."""
HEALTH_THREADS = 2
STREAMING_THREADS = 4
UPLOAD_THREADS = 4
BEAT_SECONDS = 1.0


class WebWorker(Worker):  # type: ignore[misc]
    """One process: an event loop for connections, ``--threads`` threads for requests and as many for polls."""

    def run(self) -> None:
        """Serve until a signal stops it; SIGTERM lets requests finish within ``--graceful-timeout``."""
        _raise_file_limit()
        threads = self.cfg.threads
        pools = {
            ALIVE: 1,
            HEALTH: HEALTH_THREADS,
            POLLS: threads,
            REQUESTS: threads,
            STREAMING: STREAMING_THREADS,
            UPLOADS: UPLOAD_THREADS,
        }
        config = uvicorn.Config(
            WsgiBridge(self.wsgi, pools, route_of),
            http=DeadlineProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=self.cfg.keepalive,
            timeout_graceful_shutdown=self.cfg.graceful_timeout,
            limit_max_requests=self.max_requests,
            backlog=self.cfg.backlog,
        )
        config.load()
        if self.cfg.is_ssl:
            config.ssl = sock.ssl_context(self.cfg)
        self._server = SignalFreeServer(config)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve())

    def init_signals(self) -> None:
        """Install no handlers before the event loop does."""
        for number in self.SIGNALS:
            signal.signal(number, signal.SIG_DFL)

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop)
        for number in (signal.SIGINT, signal.SIGQUIT):
            loop.add_signal_handler(number, self._stop_at_once)
        loop.add_signal_handler(signal.SIGUSR1, self.log.reopen_files)
        beating = loop.create_task(self._beat())
        try:
            await self._server.serve(sockets=[listener.sock for listener in self.sockets])
        finally:
            beating.cancel()

    async def _beat(self) -> None:
        """Notify the master process each second that the event loop runs; exit when the master is gone.

        uvicorn's own callback uses the wall clock: after that was set back, the master would kill the process.
        """
        while os.getppid() == self.ppid:
            self.notify()
            await asyncio.sleep(BEAT_SECONDS)
        self._stop()

    def _stop(self) -> None:
        self.alive = False
        self._server.should_exit = True

    def _stop_at_once(self) -> None:
        self._stop()
        self._server.force_exit = True


def _raise_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wished = CONNECTIONS_MAX if hard == resource.RLIM_INFINITY else min(CONNECTIONS_MAX, hard)
    if soft != resource.RLIM_INFINITY and soft < wished:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wished, hard))
