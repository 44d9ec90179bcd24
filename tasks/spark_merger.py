"""Merges on Spark: one long-lived session per node, all jobs of a batch in one Spark job."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from engine.lanes.manifest import JobSpec
from engine.protocol.messages import Progress
from spark.errors import BadSparkSetting, SparkJobFailed
from spark.lanes.manifest import Batch, SparkManifest, spark_lanes
from spark.probe import probe
from spark.session import check_visible, make_session
from spark.settings import SparkSettings
from spark.tags import interrupt
from tasks.errors import MergerDied
from tasks.merger import Outcome
from tasks.specs import read_specs


class SparkMerger:
    """Creates the session in the process of the node when the node starts; the process must not fork afterwards."""

    def __init__(self, store_url: str, scratch: Path) -> None:
        self._store_url = store_url
        self._settings = SparkSettings.from_environment(store_url, scratch / "spark")
        self._lock = threading.Lock()
        self._session: SparkSession | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Start Spark and check with the known-answer test that its executors run this build."""
        with self._lock:
            if self._is_stopped:
                raise MergerDied("the node is stopping")
            if self._session is None:
                self._session = make_session(self._settings)
            probe(self._session)

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
        lanes = spark_lanes()
        visible = self._visible(readable, lanes, outcomes)
        if not visible:
            return outcomes
        session = self._session
        if session is None:
            raise MergerDied("there is no Spark session")
        merged: dict[str, Any] = {}
        about = Batch(store_url=self._store_url, tag=batch, cancelled=cancelled, progress=progress)
        # Each kind has its own thread, so that kinds do not wait for each other.
        with ThreadPoolExecutor(len(visible), thread_name_prefix="merge-kind") as pool:
            running = [(own, pool.submit(lanes[kind].merge, session, own, about)) for kind, own in visible.items()]
        for specs_of_kind, future in running:
            try:
                merged |= future.result()
            except Exception as error:  # noqa: BLE001  an error of one kind must not lose the outcomes of the others
                self._check_alive(session, error)
                merged |= dict.fromkeys((spec.job for spec in specs_of_kind), error)
        for outcome in merged.values():
            if isinstance(outcome, SparkJobFailed):
                self._check_alive(session, outcome)
        for job, outcome in merged.items():
            outcomes[job] = outcome if isinstance(outcome, Exception) else outcome.to_json()
        return outcomes

    def interrupt(self, batch: str) -> None:
        """Cancel the Spark job of a batch; its tasks are interrupted and its driver call raises."""
        session = self._session
        if session is not None:
            with suppress(Exception):  # a session that cannot be reached runs nothing
                interrupt(session, batch)

    def stop(self) -> None:
        """End the session and, in local mode, its JVM."""
        self._is_stopped = True
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            with suppress(Exception):  # the session may have ended already
                session.stop()

    def _visible(
        self,
        specs: Mapping[str, Sequence[JobSpec]],
        lanes: Mapping[str, SparkManifest],
        outcomes: dict[str, Outcome],
    ) -> dict[str, list[JobSpec]]:
        """Return the jobs whose store the executors can reach; add an error to ``outcomes`` for the others."""
        visible: defaultdict[str, list[JobSpec]] = defaultdict(list)
        for kind, own in specs.items():
            store_url = lanes[kind].store_url
            for spec in own:
                try:
                    check_visible(self._settings, store_url(spec) if store_url else self._store_url)
                except BadSparkSetting as error:
                    outcomes[spec.job] = error
                else:
                    visible[kind].append(spec)
        return visible

    def _check_alive(self, session: SparkSession, error: Exception) -> None:
        """Raise MergerDied if the session has ended."""
        if not self._is_stopped and not _is_alive(session):
            raise MergerDied(f"the Spark session has ended: {type(error).__name__}: {error}") from error


def _is_alive(session: SparkSession) -> bool:
    try:
        return bool(session.range(1).count() == 1)
    except Exception:  # noqa: BLE001  any error means that the session is dead
        return False
