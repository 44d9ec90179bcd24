"""A real Prometheus on the loopback interface that serves a folder of blocks and scrapes nothing."""

from __future__ import annotations

import json
import shutil
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.processes import LOOPBACK, Process, Processes, answers_http, free_port

PROGRAM = "prometheus"
EVERYTHING = '{__name__=~".+"}'
ANSWER_SECONDS = 60.0
POINTS_MAX = 10_000
"""Prometheus refuses more points of a series in an answer."""


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running server; ``folder`` is its data folder."""

    address: str
    folder: Path
    process: Process

    def samples(self, start_ms: int, end_ms: int) -> Any:
        """Return all samples of all series after ``start_ms`` up to ``end_ms`` but the marks of a series' end."""
        seconds = -(-(end_ms - start_ms) // 1000)
        return self._ask("query", query=f"{EVERYTHING}[{seconds}s]", time=f"{end_ms / 1000:.3f}")

    def steps(self, start_ms: int, end_ms: int, step_s: int) -> Any:
        """Return what a graph shows of all series: a series that has ended is not there any more."""
        step_s = max(step_s, (end_ms - start_ms) // 1000 // POINTS_MAX + 1)
        span = {"start": f"{start_ms / 1000:.3f}", "end": f"{end_ms / 1000:.3f}", "step": str(step_s)}
        return self._ask("query_range", query=EVERYTHING, **span)

    def _ask(self, kind: str, **parameters: str) -> Any:
        url = f"{self.address}/api/v1/{kind}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=ANSWER_SECONDS) as response:
            answer = json.load(response)
        assert answer["status"] == "success", answer
        assert not answer.get("warnings"), answer["warnings"]
        return sorted(answer["data"]["result"], key=lambda series: sorted(series["metric"].items()))


@contextmanager
def serving(blocks: Iterable[Path], home: Path) -> Iterator[Prometheus]:
    """Start a Prometheus in the empty folder ``home`` over copies of these blocks, and stop it afterwards.

    What it merges by itself are blocks of one interval of two hours.
    """
    data = home / "data"
    for block in blocks:
        shutil.copytree(block, data / block.name)
    (home / "empty.yml").write_text("")
    address = f"{LOOPBACK}:{free_port()}"
    command = [
        str(shutil.which(PROGRAM)),
        f"--config.file={home / 'empty.yml'}",
        f"--storage.tsdb.path={data}",
        "--storage.tsdb.retention.time=100y",
        "--storage.tsdb.max-block-duration=2h",
        f"--web.listen-address={address}",
        # The libraries of the web pages are not part of what is asked here.
        f"--web.console.libraries={home}",
        f"--web.console.templates={home}",
    ]
    with Processes() as processes:
        process = processes.start(PROGRAM, command, folder=home)
        processes.wait_until_answers(process, lambda: answers_http(f"http://{address}/-/ready"))
        yield Prometheus(f"http://{address}", data, process)
        assert process.terminate() == 0, process.story()
