"""Merges in this process without Spark: runs each lane's merge of the engine, one job after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from engine.lanes.manifest import MergeRun
from engine.protocol.messages import Progress
from engine.storage import ObjectStore, open_store
from tasks.merger import Outcome
from tasks.specs import engine_lanes, read_specs


class EngineMerger:
    """Runs each batch in the calling thread; scratch files are written below ``scratch``."""

    def __init__(self, store_url: str, scratch: Path) -> None:
        self._store_url = store_url
        self._scratch = scratch
        self._store: ObjectStore | None = None

    def start(self) -> None:
        """Open the object store of the installation; other stores are opened by the first job that names them."""
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
        assert self._store is not None
        readable, outcomes = read_specs(specs)
        lanes = engine_lanes()
        for kind, own in readable.items():
            for spec in own:
                run = MergeRun(
                    store=self._store,
                    scratch=self._scratch,
                    cancelled=partial(cancelled, spec.job),
                    progress=partial(progress, spec.job),
                )
                try:
                    outcomes[spec.job] = lanes[kind].merge(spec, run)
                except Exception as error:  # noqa: BLE001  an error of a job is the outcome of that job only
                    outcomes[spec.job] = error
        return outcomes

    def interrupt(self, batch: str) -> None:
        """Do nothing: a merge polls ``cancelled`` itself."""

    def stop(self) -> None:
        """Do nothing: this merger holds no resources."""
