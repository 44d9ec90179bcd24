"""Start a compactor node: ``python -m tasks.compactor``. Its settings are in ``tasks.settings``.

The same as ``python -m celery -A tasks.app worker --pool threads -Q compactor.wake -n compactor@%h`` with enough
threads: each job may come in a message of its own, and echoes and wake-ups need room beside them.
"""

from __future__ import annotations

import os
import sys

from tasks.app import WAKE_QUEUE, app
from tasks.errors import BadSetting
from tasks.log import configure_log
from tasks.settings import NodeSettings

SPARE_THREADS = 2


def main() -> int:
    """Run until SIGTERM; 2 when a setting is missing or wrong."""
    try:
        settings = NodeSettings.from_environment()
    except BadSetting as error:
        print(f"lithify: {error}", file=sys.stderr)
        return 2
    configure_log(os.environ.get("LOG_LEVEL", "INFO"))
    app.worker_main(
        [
            *("worker", "--pool", "threads", "--queues", WAKE_QUEUE, "--hostname", "compactor@%h"),
            *("--concurrency", str(settings.capacity + SPARE_THREADS), "--loglevel", "WARNING", "--quiet"),
            *("--without-gossip", "--without-mingle", "--without-heartbeat"),
        ]
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
