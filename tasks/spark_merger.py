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
    """Makes the session in the node's own process when the node starts; never forked."""

    def __init__(self, store_url: str, scratch: Path) -> None:
        self._store_url = store_url
        self._settings = SparkSettings.from_environment(store_url, scratch / "spark")
        self._lock = threading.Lock()
        self._session: SparkSession | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Start Spark and prove with known answers that its executors run this build."""
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
        told: dict[str, Any] = {"tag": batch, "cancelled": cancelled, "progress": progress}
        if profiles:
            kinds.append((profiles, lambda: profile_merge.run(session, profiles, self._store_url, **told)))
        if blocks:
            kinds.append((blocks, lambda: tsdb_merge.run(session, blocks, **told)))
        if tables:
            kinds.append((tables, lambda: table_merge.run(session, tables, **told)))
        if branches:
            kinds.append((branches, lambda: _compact_branches(session, branches, self._store_url, told)))
        # Each kind in a thread of its own: neither waits for the other.
        with ThreadPoolExecutor(len(kinds), thread_name_prefix="merge-kind") as pool:
            running = [(specs_of_kind, pool.submit(merge)) for specs_of_kind, merge in kinds]
        for specs_of_kind, future in running:
            try:
                merged |= future.result()
            except Exception as error:  # noqa: BLE001  the other kind's outcomes are kept
                self._check_alive(session, error)
                merged |= dict.fromkeys((spec.job for spec in specs_of_kind), error)
        for outcome in merged.values():
            if isinstance(outcome, SparkJobFailed):
                self._check_alive(session, outcome)
        for job, outcome in merged.items():
            outcomes[job] = outcome if isinstance(outcome, Exception) else outcome.to_json()
        return outcomes

    def interrupt(self, batch: str) -> None:
        """Stop the Spark job of a batch; its tasks are told and its driver call raises."""
        session = self._session
        if session is not None:
            with suppress(Exception):  # a session that cannot be told has nothing running
                profile_merge.interrupt(session, batch)

    def stop(self) -> None:
        """End the session and, in local mode, its JVM."""
        self._is_stopped = True
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            with suppress(Exception):  # what is gone already needs no goodbye
                session.stop()

    def _visible(self, specs: Sequence[Spec], outcomes: dict[str, Outcome]) -> list[Spec]:
        """Return the jobs whose bucket the executors can see; the others have their outcome."""
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
        """Raise MergerDied if this trouble was the end of the session."""
        if not self._is_stopped and not _is_alive(session):
            raise MergerDied(f"Spark is gone: {type(error).__name__}: {error}") from error


def _compact_branches(
    session: SparkSession, specs: Sequence[CatalogCompactSpec], store_url: str, told: dict[str, Any]
) -> dict[str, Any]:
    """Fold small branches in this process, when nothing else wants the processor, and large ones on Spark."""
    lower_thread_priority()
    return catalog_compact.run_where_it_fits(session, specs, store_url, **told)


def _is_alive(session: SparkSession) -> bool:
    try:
        return bool(session.range(1).count() == 1)
    except Exception:  # noqa: BLE001  whatever it raises, it does not answer
        return False
