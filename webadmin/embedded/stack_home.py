"""Contents of a stack's home folder: lock, password of the admin, credential of the node."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from django.contrib.auth import get_user_model
from django.utils import timezone

from webadmin.base.access.errors import CredentialRefused
from webadmin.base.access.services import check_worker_credential, issue_worker_credential
from webadmin.base.home import private_file, private_folder
from webadmin.embedded.errors import HomeInUse
from webadmin.embedded.private_files import read_private, write_private

ADMIN_NAME = "admin"
PASSWORD_BYTES = 12
LOCK_FILE = "stack.lock"
PASSWORD_FILE = "admin_password"
CREDENTIAL_FILE = "worker_credential"


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Login of the administrator. ``password`` is "" if it was changed by a user.

    ``password_file`` is the path of the generated password.
    """

    name: str
    password: str
    password_file: Path


@contextmanager
def locked_home(home: Path) -> Iterator[None]:
    """Lock the home folder for one stack; the lock ends with this process. Raises HomeInUse."""
    private_folder(home)
    with private_file(home / LOCK_FILE).open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise HomeInUse(str(home), lock.read().strip()) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def prepare_login(home: Path) -> Login:
    """Create the ``admin`` account once with a generated password; later return its login."""
    users = get_user_model().objects
    path = home / PASSWORD_FILE
    password = read_private(path)
    admin = users.filter(username=ADMIN_NAME).first()
    if admin is None:
        # Write the file first: an account with an unknown password is useless.
        password = password or secrets.token_urlsafe(PASSWORD_BYTES)
        write_private(path, password)
        users.create_superuser(username=ADMIN_NAME, password=password)
        return Login(name=ADMIN_NAME, password=password, password_file=path)
    known = password if password and admin.check_password(password) else ""
    return Login(name=ADMIN_NAME, password=known, password_file=path)


def prepare_worker_credential(home: Path) -> str:
    """Return a valid credential for the node of this machine; create one if it was revoked or lost."""
    path = home / CREDENTIAL_FILE
    kept = read_private(path)
    try:
        check_worker_credential(wire_form=kept, at=timezone.now())
    except CredentialRefused:
        name = f"this-machine-{secrets.token_hex(3)}"
        kept = issue_worker_credential(name=name, actor="manage.py up").wire_form
        write_private(path, kept)
    return kept
