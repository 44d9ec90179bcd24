"""Start a compactor node: ``python -m tasks.compactor``. Its settings are in ``engine.settings.node``.

Equivalent to ``python -m celery -A tasks.app worker --pool threads -Q compactor.wake -n compactor@%h`` with enough
threads: each job may have its own message, and echoes and wake-ups need threads too.
"""

from __future__ import annotations

import sys

from celery.utils import nodenames

from engine.settings.base import BadSetting
from engine.settings.node import NodeSettings
from tasks.app import app
from tasks.errors import NodeNameTaken
from tasks.identity import claim_name
from tasks.log import configure_log
from tasks.queues import WAKE_QUEUE

SPARE_THREADS = 2


def main() -> int:
    """Run until SIGTERM; return 2 if a setting is missing or invalid, 1 if the node must be restarted."""
    try:
        settings = NodeSettings.read()
        app.identity = claim_name(settings.LITHIFY_HOME, settings.NODE_NAME)
    except (BadSetting, NodeNameTaken) as error:
        print(f"lithify: {error}", file=sys.stderr)
        return 2
    configure_log(settings.LOG_LEVEL)
    # Not by the command line of Celery, which drops the exit code of the worker.
    worker = app.Worker(
        hostname=nodenames.host_format(nodenames.default_nodename("compactor@%h")),
        pool_cls="threads",
        queues=WAKE_QUEUE,
        concurrency=settings.NODE_CAPACITY + SPARE_THREADS,
        loglevel="WARNING",
        quiet=True,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )
    worker.start()
    return int(worker.exitcode or 0)


if __name__ == "__main__":
    sys.exit(main())
