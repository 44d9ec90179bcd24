"""How a node merges: the operations it needs of whatever runs its jobs, and what may come back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from engine.protocol.messages import Progress

Outcome = dict[str, Any] | Exception
"""A job's result as JSON of its lane, or why there is none."""


class Merger(Protocol):
    """Runs batches of jobs, several batches at a time from several threads."""

    def start(self) -> None:
        """Get ready and prove it with known answers; raises when this node must not take work."""

    def merge(
        self,
        batch: str,
        specs: Mapping[str, dict[str, Any]],
        *,
        cancelled: Callable[[str], bool],
        progress: Callable[[str, Progress], None],
    ) -> Mapping[str, Outcome]:
        """Merge the jobs of one message together (specifications by job name); return one outcome per job name.

        ``batch`` names them for ``interrupt``. ``cancelled(job)`` and ``progress(job, …)`` may be called from any
        thread. An exception means that no job of the batch has an outcome; MergerDied also that none ever will.
        """

    def interrupt(self, batch: str) -> None:
        """Stop a batch of which no job is wanted any more; its ``merge`` returns or raises soon."""

    def stop(self) -> None:
        """Give everything back; running merges raise."""
