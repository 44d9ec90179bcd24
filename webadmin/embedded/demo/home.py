"""The home folder of the demonstration. It is deleted at every start; folders of others are rejected."""

from __future__ import annotations

import shutil
from pathlib import Path

from engine.core.errors import LithifyError
from webadmin.embedded.stack_home import LOCK_FILE, locked_home

MARK = "wiped_by_the_demo"
ENVIRONMENT_TO_FORGET = (
    *("DATABASE_URL", "OBJECT_STORE_URL", "BROKER_URL", "SECRET_KEY", "LITHIFY_TOKEN_KEYS"),
    *("SPARK_MASTER", "SPARK_REMOTE", "SPARK_ARCHIVE", "HTTPS", "ALLOWED_HOSTS", "NODE_NAME"),
)
"""Settings of a real installation to ignore.

The demonstration has its own database, store and broker, and runs Spark on this machine.
"""


class NotADemoHome(LithifyError):
    """The folder has contents that the demonstration did not create; choose an empty one with --home."""

    code = "not_a_demo_home"


def wipe_home(home: Path) -> None:
    """Empty the folder, except for the marker file by which the next start recognises it.

    Raises NotADemoHome, HomeInUse.
    """
    if home.exists() and not (home / MARK).is_file() and any(home.iterdir()):
        raise NotADemoHome(f"{home} holds other things than a demonstration; choose an empty folder with --home")
    with locked_home(home):
        for entry in home.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif entry.name != LOCK_FILE:
                entry.unlink()
        (home / MARK).write_text("This folder is emptied whenever the demonstration starts.\n")


def demo_environment(environment: dict[str, str], home: Path) -> dict[str, str]:
    """Return the environment that places all data of the demonstration in ``home``."""
    kept = {name: value for name, value in environment.items() if name not in ENVIRONMENT_TO_FORGET}
    return {**kept, "LITHIFY_HOME": str(home)}
