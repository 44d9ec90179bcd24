"""Interface of mergers: the operations that a node needs, and the outcomes of jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from engine.protocol.messages import Progress

Outcome = dict[str, Any] | Exception
"""Result of a job as JSON of its lane, or the error."""


class Merger(Protocol):
    """Runs batches of jobs, several batches at a time from several threads."""

    def start(self) -> None:
        """Initialise and run the known-answer test; raise an error if this node must not take work."""

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
        thread. An exception means that no job of the batch has an outcome; MergerDied also that this merger is dead.
        """

    def interrupt(self, batch: str) -> None:
        """Stop a batch whose jobs are all cancelled; its ``merge`` returns or raises soon."""

    def stop(self) -> None:
        """Release all resources; running merges raise an error."""
