"""Run the program with the unmodified profiling SDK beside the demonstration's own senders."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.core.errors import LithifyError
from webadmin.embedded.demo import route_planner
from webadmin.embedded.demo.route_planner import NO_SDK, PROFILED, SERVICE

WORK_SECONDS = 3.0  # Minimum; it runs as long as the other senders.
END_SECONDS = 45.0  # The SDK times out its last push before that.
LOG = "route_planner.log"


class SdkProgramFailed(LithifyError):
    """The program with the SDK failed, or its profiles did not arrive; the message gives the reason."""

    code = "sdk_program_failed"


@contextmanager
def sdk_program(address: str, credential: str, home: Path) -> Iterator[bool]:
    """Run the program until the block is left; at its end every push has a response.

    Yields False, and runs nothing, if the SDK cannot be imported: it is a development dependency. Raises
    SdkProgramFailed.
    """
    log = home / LOG
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", route_planner.__name__, str(WORK_SECONDS)],
            env={**os.environ, "LITHIFY_ADDRESS": address, "LITHIFY_CREDENTIAL": credential},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,  # Ctrl-C is handled here; the program ends when its standard input closes.
        )
    try:
        has_sdk = _is_profiled(process, log)
        yield has_sdk
        if has_sdk:
            _end(process, log)
    finally:
        process.kill()
        process.communicate()


def _is_profiled(process: subprocess.Popen[str], log: Path) -> bool:
    assert process.stdout is not None
    if process.stdout.readline().strip() == PROFILED:
        return True
    _end(process, log)
    return False


def _end(process: subprocess.Popen[str], log: Path) -> None:
    try:
        process.communicate(timeout=END_SECONDS)
    except subprocess.TimeoutExpired:
        raise SdkProgramFailed(f"{SERVICE} did not end within {END_SECONDS:g} s; see {log}") from None
    if process.returncode not in (0, NO_SDK):
        output = log.read_text(errors="replace").strip()[-2000:]
        raise SdkProgramFailed(f"{SERVICE} ended with exit code {process.returncode}: {output}")
