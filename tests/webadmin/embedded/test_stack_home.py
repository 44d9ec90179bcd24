"""The home folder of a stack: one stack at a time, secrets that only their owner reads."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest
from django.contrib.auth import get_user_model
from django.utils import timezone

from webadmin.base.access.credential_changes import revoke_credential
from webadmin.base.access.models import WorkerCredential
from webadmin.base.access.services import check_worker_credential
from webadmin.embedded.errors import HomeInUse
from webadmin.embedded.stack_home import locked_home, prepare_login, prepare_worker_credential

HOLDS_THE_LOCK = """
import sys, pathlib, django, os
os.environ["DJANGO_SETTINGS_MODULE"] = "webadmin.settings"
django.setup()
from webadmin.embedded.stack_home import locked_home
with locked_home(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_stack_in_the_same_home_is_refused_with_the_holders_process_id(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDS_THE_LOCK, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(HomeInUse, match=f"process {holder.pid}"), locked_home(tmp_path):
            pass
        holder.kill()
    with locked_home(tmp_path):
        pass  # the lock went with its holder, however it ended


@pytest.mark.django_db
def test_the_admin_account_is_made_once_and_its_password_is_kept_private(tmp_path: Path) -> None:
    login = prepare_login(tmp_path)
    assert get_user_model().objects.get(username="admin", is_superuser=True).check_password(login.password)
    assert stat.S_IMODE((tmp_path / "admin_password").stat().st_mode) == 0o600
    assert prepare_login(tmp_path) == login


@pytest.mark.django_db
def test_a_password_somebody_chose_is_neither_changed_nor_shown(tmp_path: Path) -> None:
    prepare_login(tmp_path)
    admin = get_user_model().objects.get(username="admin")
    admin.set_password("chosen by a person")
    admin.save()
    assert prepare_login(tmp_path).password == ""
    admin.refresh_from_db()
    assert admin.check_password("chosen by a person")


@pytest.mark.django_db
def test_the_nodes_credential_is_reused_while_it_works(tmp_path: Path) -> None:
    credential = prepare_worker_credential(tmp_path)
    assert check_worker_credential(wire_form=credential, at=timezone.now())
    assert prepare_worker_credential(tmp_path) == credential
    assert stat.S_IMODE((tmp_path / "worker_credential").stat().st_mode) == 0o600


@pytest.mark.django_db
def test_a_revoked_credential_is_replaced(tmp_path: Path) -> None:
    first = prepare_worker_credential(tmp_path)
    revoke_credential(name=WorkerCredential.objects.get().name, actor="test")
    second = prepare_worker_credential(tmp_path)
    assert second != first
    assert check_worker_credential(wire_form=second, at=timezone.now())
