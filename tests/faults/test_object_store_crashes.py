"""A writer that is killed in the middle of a write leaves no object under the final name."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.storage import ObjectStore, open_store

DEADLINE_SECONDS = 60

# Writes and then waits to be killed: "begun" is printed when everything but the commit has happened.
STREAM = """
import sys
from engine.storage import open_store
writer = open_store(sys.argv[1]).open_writer("victim")
writer.write(bytes(9 << 20))
print("begun", flush=True)
sys.stdin.read()
"""

# A folder's put stops for ever inside the system call named by the second argument.
PUT_STOPPING_AT = """
import os, sys
from engine.storage import open_store
def stop(*_, **__):
    print("begun", flush=True)
    sys.stdin.read()
setattr(os, sys.argv[2], stop)
getattr(open_store(sys.argv[1]), sys.argv[3])("victim", b"new content")
"""


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectStore]:
    if request.param == "s3":
        yield request.getfixturevalue("s3_store")
    else:
        yield open_store((tmp_path / "store").as_uri())


def run_and_kill(program: str, *arguments: str) -> None:
    """Start a Python program, wait until it says that it has begun, and kill it."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    with process, selectors.DefaultSelector() as selector:
        assert process.stdout
        selector.register(process.stdout, selectors.EVENT_READ)
        try:
            assert selector.select(DEADLINE_SECONDS), "the writer did not begin in time"
            assert process.stdout.readline() == b"begun\n"
        finally:
            process.kill()


def test_a_writer_killed_midway_leaves_no_object(store: ObjectStore) -> None:
    run_and_kill(STREAM, store.url)
    assert list(store.list()) == []
    # What it left is found and removed once it is old enough.
    assert store.sweep_unfinished(before=2**40) == 1
    assert store.sweep_unfinished(before=2**40) == 0


def test_a_writer_killed_midway_leaves_the_old_object_whole(store: ObjectStore) -> None:
    store.put("victim", b"old content")
    run_and_kill(STREAM, store.url)
    assert store.get("victim") == b"old content"


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_put_killed_before_its_rename_leaves_the_old_object(tmp_path: Path, call: str) -> None:
    store = open_store(str(tmp_path))
    store.put("victim", b"old content")
    run_and_kill(PUT_STOPPING_AT, str(tmp_path), call, "put")
    assert store.get("victim") == b"old content"
    assert store.sweep_unfinished(before=2**40) == 1


def test_a_create_killed_before_its_link_leaves_the_key_free(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    run_and_kill(PUT_STOPPING_AT, str(tmp_path), "link", "create")
    assert list(store.list()) == []
    assert store.create("victim", b"by another")
