"""Merges in this process, one job after the other: the engine's own ``run``, without Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from engine.profiles import merge as profile_merge
from engine.profiles.merge_model import Scratch
from engine.protocol.messages import Progress
from engine.protocol.profile_jobs import ProfileMergeSpec
from engine.storage import ObjectStore, open_store
from tasks.merger import Outcome
from tasks.merging import read_specs


class EngineMerger:
    """Each batch runs in the thread that asks for it; scratch files go under ``scratch``."""

    def __init__(self, store_url: str, scratch: Path) -> None:
        self._store_url = store_url
        self._scratch = scratch
        self._store: ObjectStore | None = None

    def start(self) -> None:
        """Open the store."""
        self._store = open_store(self._store_url)

    def merge(
        self,
        batch: str,
        specs: Mapping[str, dict[str, Any]],
        *,
        cancelled: Callable[[str], bool],
        progress: Callable[[str, Progress], None],
    ) -> Mapping[str, Outcome]:
        """See ``Merger.merge``."""
        readable, outcomes = read_specs(specs)
        for spec in readable:
            outcomes[spec.job] = self._merge_one(spec, cancelled)
        return outcomes

    def interrupt(self, batch: str) -> None:
        """Nothing: a merge asks ``cancelled`` itself."""

    def stop(self) -> None:
        """Nothing is held."""

    def _merge_one(self, spec: ProfileMergeSpec, cancelled: Callable[[str], bool]) -> Outcome:
        assert self._store is not None
        with tempfile.TemporaryDirectory(dir=self._scratch) as folder:
            try:
                return profile_merge.run(
                    spec, self._store, scratch=Scratch(Path(folder)), cancelled=lambda: cancelled(spec.job)
                ).to_json()
            except Exception as error:  # noqa: BLE001  one job's trouble is that job's outcome
                return error
