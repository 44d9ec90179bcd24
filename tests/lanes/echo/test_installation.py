"""Text files from registration to a merged file in an installation of real processes, and ``kill -9`` at the swap."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from tests.faults.stack import SETTLE_SECONDS, WEBS, FaultStack
from tests.faults.steps import Step, commit
from tests.faults.traps import Moment
from tests.processes import wait_until

BAD = b"ab\xff"
LOOK = """
import django, json, sys
django.setup()
from io import StringIO
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from webadmin.schedule.models import Job
settings.ALLOWED_HOSTS = ["testserver"]
client = Client()
user, _ = User.objects.get_or_create(username="looker", is_staff=True, is_superuser=True)
client.force_login(user, settings.AUTHENTICATION_BACKENDS[-1])
job = Job.objects.filter(lane="echo", state="done").order_by("id").last()
pages = {"front": "/admin/", "list": "/admin/echo/textfile/", "progress": "/admin/backlog/",
         "schema": "/api/schema/?format=json"} | ({"job": f"/admin/schedule/job/{job.pk}/change/"} if job else {})
found = {name: client.get(address) for name, address in pages.items()}
assert {answer.status_code for answer in found.values()} == {200}, found
bearer = f"Bearer {settings.METRICS_TOKEN}"
told = {name: answer.content.decode().replace("\\xa0", " ") for name, answer in found.items()}
told["metrics"] = client.get("/metrics", headers={"authorization": bearer}).content.decode()
told["health"] = client.get("/progressz", headers={"authorization": bearer}).content.decode()
for key in sys.argv[1:]:
    out = StringIO()
    call_command("explain", key, stdout=out)
    told[key] = out.getvalue()
print(json.dumps(told))
"""


class Folder:
    """A folder of text files of an installation."""

    def __init__(self, stack: FaultStack, name: str) -> None:
        self.stack = stack
        self.name = name

    def put(self, contents: Sequence[bytes]) -> list[str]:
        """Write files to the store and register them; return their keys."""
        keys = [f"texts/{self.name}/{number}" for number in range(len(contents))]
        for key, data in zip(keys, contents, strict=True):
            self.stack.store.put(key, data)
        texts = [{"key": key, "size": len(data)} for key, data in zip(keys, contents, strict=True)]
        answer = self._request("POST", json={"texts": texts})
        assert answer.status_code == 200, answer.text
        return keys

    def keys(self) -> list[str]:
        """Return the keys of the files that readers see."""
        return [text["key"] for text in self._request("GET").raise_for_status().json()["texts"]]

    def content(self) -> bytes:
        """Return what readers see."""
        return b"".join(self.stack.store.get(key) for key in self.keys())

    def wait_until_merged(self, content: bytes) -> str:
        """Wait until the folder is one merged file, which has this content; return its key."""

        def is_merged() -> bool:
            seen = self.keys()
            return len(seen) == 1 and seen[0].startswith("echo/")

        try:
            wait_until(is_merged, f"folder {self.name} is merged", SETTLE_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.stack.story()}") from None
        assert self.content() == content
        return self.keys()[0]

    def _request(self, method: str, **options: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.stack.credentials['writer']}"}
        url = f"{self.stack.service.url}/api/v1/echo/acme/{self.name}"
        return httpx.request(method, url, headers=headers, timeout=30, **options)


def look(stack: FaultStack, *keys: str) -> dict[str, str]:
    """Return pages, metrics, health and explanations as an operator sees them."""
    return dict(json.loads(stack.python("-c", LOOK, *keys).splitlines()[-1]))


def test_text_files_are_merged_and_shown_everywhere(echo_stack: FaultStack) -> None:
    folder = Folder(echo_stack, "notes")
    contents = [f"line {number}\n".encode() for number in range(4)]
    keys = folder.put(contents)
    merged = folder.wait_until_merged(b"".join(contents))
    seen = look(echo_stack, keys[0], merged)
    assert "is replaced: job echo-acme-notes-1-4 merged it" in seen[keys[0]]
    assert f"Text file {merged} is live: it is a file of acme/notes" in seen[merged]
    assert "Text files" in seen["front"]
    assert "acme/notes" in seen["front"]
    assert merged in seen["list"]
    assert all(key in seen["job"] for key in (*keys, merged))
    assert "/api/v1/echo/{tenant}/{folder}" in seen["schema"]
    assert 'lithify_echo_texts{folder="notes",state="superseded",tenant="acme"} 4.0' in seen["metrics"]
    assert 'lithify_echo_texts{folder="notes",state="live",tenant="acme"} 1.0' in seen["metrics"]
    states = json.loads(echo_stack.python("manage.py", "echo", "status"))
    assert states == dict.fromkeys(keys, "superseded") | {merged: "live"}


def test_a_bad_source_is_quarantined_named_and_released_once_it_is_repaired(echo_stack: FaultStack) -> None:
    folder = Folder(echo_stack, "damaged")
    contents = [b"one\n", BAD, b"two\n", b"three\n"]
    keys = folder.put(contents)
    folder.wait_until_merged(b"one\ntwo\nthree\n")
    seen = look(echo_stack, keys[1])
    assert "is quarantined: texts/damaged/1: text at offset 2: it is not UTF-8 text" in seen[keys[1]]
    assert "1 text file in quarantine: cannot be read, with the offset." in seen["front"]
    assert "texts_quarantined" in seen["health"]
    assert 'lithify_echo_texts{folder="damaged",state="quarantined",tenant="acme"} 1.0' in seen["metrics"]
    echo_stack.store.put(keys[1], b"ab!")
    assert json.loads(echo_stack.python("manage.py", "echo", "release", keys[1])) == [keys[1]]
    more = Folder(echo_stack, "damaged")
    assert more.content() == b"one\ntwo\nthree\nab!"


@pytest.mark.parametrize("moment", [Moment.BEFORE, Moment.AFTER], ids=["before", "after"])
def test_a_web_process_killed_at_the_swap_loses_and_doubles_no_line(echo_stack: FaultStack, moment: Moment) -> None:
    folder = Folder(echo_stack, f"killed-{moment.name.lower()}")
    contents = [f"{number}\n".encode() for number in range(3)]
    step = Step(name="swap", on="database", match=commit(f"echo/acme/{folder.name}/"), moment=moment, victims=WEBS)
    trap, is_set = step.set_trap(echo_stack, 0)
    superseded = "SELECT count(*) FROM echo_textfile WHERE folder = %s AND state = 'superseded'"
    with is_set:
        folder.put(contents)
        trap.wait()
        assert echo_stack.rows(superseded, folder.name) == [(3 if moment is Moment.AFTER else 0,)]
        echo_stack.kill_client(trap, *WEBS)
    folder.wait_until_merged(b"".join(contents))
    assert echo_stack.rows("SELECT count(*) FROM echo_textfile WHERE folder = %s", folder.name) == [(4,)]
    open_jobs = "SELECT count(*) FROM schedule_job WHERE lane = 'echo' AND state <> 'done' AND spec->>'folder' = %s"
    assert echo_stack.rows(open_jobs, folder.name) == [(0,)]
