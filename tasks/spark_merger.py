"""Merges on Spark: one long-lived session per node, all jobs of a batch in one Spark job."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from engine.core.thread_priority import lower_thread_priority
from engine.lanes.catalog.jobs import CatalogCompactSpec
from engine.lanes.profiles.jobs import ProfileMergeSpec
from engine.lanes.tables.jobs import TableMergeSpec
from engine.lanes.tsdb.jobs import TsdbMergeSpec
from engine.protocol.messages import Progress
from spark.errors import BadSparkSetting, SparkJobFailed
from spark.jobs import catalog_compact, profile_merge, table_merge, tsdb_merge
from spark.probe import probe
from spark.session import check_visible, make_session
from spark.settings import SparkSettings
from tasks.errors import MergerDied
from tasks.merger import Outcome
from tasks.specs import Spec, read_specs


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
        visible = self._visible(readable, outcomes)
        blocks = [spec for spec in visible if isinstance(spec, TsdbMergeSpec)]
        tables = [spec for spec in visible if isinstance(spec, TableMergeSpec)]
        profiles = [spec for spec in visible if isinstance(spec, ProfileMergeSpec)]
        branches = [spec for spec in visible if isinstance(spec, CatalogCompactSpec)]
        if not visible:
            return outcomes
        session = self._session
        if session is None:
            raise MergerDied("there is no Spark session")
        merged: dict[str, Any] = {}
        kinds: list[tuple[Sequence[Spec], Callable[[], Mapping[str, Any]]]] = []
        options: dict[str, Any] = {"tag": batch, "cancelled": cancelled, "progress": progress}
        if profiles:
            kinds.append((profiles, lambda: profile_merge.run(session, profiles, self._store_url, **options)))
        if blocks:
            kinds.append((blocks, lambda: tsdb_merge.run(session, blocks, **options)))
        if tables:
            kinds.append((tables, lambda: table_merge.run(session, tables, **options)))
        if branches:
            kinds.append((branches, lambda: _compact_branches(session, branches, self._store_url, options)))
        # Each kind has its own thread, so that kinds do not wait for each other.
        with ThreadPoolExecutor(len(kinds), thread_name_prefix="merge-kind") as pool:
            running = [(specs_of_kind, pool.submit(merge)) for specs_of_kind, merge in kinds]
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
                profile_merge.interrupt(session, batch)

    def stop(self) -> None:
        """End the session and, in local mode, its JVM."""
        self._is_stopped = True
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            with suppress(Exception):  # the session may have ended already
                session.stop()

    def _visible(self, specs: Sequence[Spec], outcomes: dict[str, Outcome]) -> list[Spec]:
        """Return the jobs whose bucket the executors can reach; add an error to ``outcomes`` for the others."""
        visible = []
        for spec in specs:
            url = self._store_url
            if isinstance(spec, TsdbMergeSpec):
                url = spec.bucket_url
            elif isinstance(spec, TableMergeSpec):
                url = spec.url
            try:
                check_visible(self._settings, url)
            except BadSparkSetting as error:
                outcomes[spec.job] = error
            else:
                visible.append(spec)
        return visible

    def _check_alive(self, session: SparkSession, error: Exception) -> None:
        """Raise MergerDied if the session has ended."""
        if not self._is_stopped and not _is_alive(session):
            raise MergerDied(f"the Spark session has ended: {type(error).__name__}: {error}") from error


def _compact_branches(
    session: SparkSession, specs: Sequence[CatalogCompactSpec], store_url: str, options: dict[str, Any]
) -> dict[str, Any]:
    """Compact small branches in this process at idle priority, and large ones on Spark."""
    lower_thread_priority()
    return catalog_compact.run_where_it_fits(session, specs, store_url, **options)


def _is_alive(session: SparkSession) -> bool:
    try:
        return bool(session.range(1).count() == 1)
    except Exception:  # noqa: BLE001  any error means that the session is dead
        return False
