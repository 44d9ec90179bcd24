"""The folder where a Lithify installation keeps what it makes by itself: the default database, objects, secrets."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

SECRET_BYTES = 48


def home_folder() -> Path:
    """Return ``LITHIFY_HOME`` (default ``.lithify`` in the current folder), made if missing."""
    folder = Path(os.environ.get("LITHIFY_HOME") or ".lithify").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def kept_secret(path: Path) -> str:
    """Return the secret in this file; the first caller makes it, readable by its owner only.

    The file gets its name only when it is complete, and only if it has none yet: of two processes that start
    together one wins and both return the winner's secret.
    """
    if not path.exists():
        draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(SECRET_BYTES))
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return path.read_text().strip()
