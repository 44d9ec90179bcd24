"""The Spark merger around a session that is not there: what it makes of results, troubles and a dead Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.core.errors import ChecksumMismatch
from engine.lanes.profiles.jobs import ProfileMergeResult, ProfileMergeSpec
from spark.errors import SparkJobFailed
from tasks.errors import BadAssignment, MergerDied
from tasks.spark_merger import SparkMerger

SPEC = ProfileMergeSpec(job="job-a", tenant="", shard=1, level=0, sources=(), fence=7)
OTHER = ProfileMergeSpec(job="job-b", tenant="", shard=1, level=0, sources=(), fence=7)
RESULT = ProfileMergeResult(sources=(), blocks=())


class Session:
    """Answers as long as it lives."""

    is_alive = True

    def range(self, count: int) -> Session:
        if not self.is_alive:
            raise ConnectionRefusedError("no JVM")
        return self

    def count(self) -> int:
        return 1

    def stop(self) -> None:
        self.is_alive = False


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    session = Session()
    monkeypatch.setattr("tasks.spark_merger.make_session", lambda settings: session)
    monkeypatch.setattr("tasks.spark_merger.probe", lambda session: {})
    return session


@pytest.fixture
def merger(session: Session, tmp_path: Path) -> SparkMerger:
    merger = SparkMerger(f"file://{tmp_path}", tmp_path)
    merger.start()
    return merger


def answer(monkeypatch: pytest.MonkeyPatch, outcome: Any) -> None:
    def run(session: object, specs: list[ProfileMergeSpec], store_url: str, **_: Any) -> dict[str, Any]:
        if isinstance(outcome, BaseException):
            raise outcome
        return {spec.job: outcome[spec.job] for spec in specs}

    monkeypatch.setattr("spark.lanes.profiles.merge.run", run)


def merge(merger: SparkMerger, *specs: dict[str, Any]) -> Any:
    named = {spec["job"]: spec for spec in specs}
    return merger.merge("batch-1", named, cancelled=lambda job: False, progress=lambda job, progress: None)


def test_results_become_json_and_errors_stay_errors(merger: SparkMerger, monkeypatch: pytest.MonkeyPatch) -> None:
    error = ChecksumMismatch("symbols", 3, "no")
    answer(monkeypatch, {"job-a": RESULT, "job-b": error})
    assert merge(merger, SPEC.to_json(), OTHER.to_json()) == {"job-a": RESULT.to_json(), "job-b": error}


@pytest.mark.parametrize(
    "change", [{"kind": "tsdb"}, {"sources": 7}, {"sources": [{"id": "x"}]}, {"level": None, "kind": None}]
)
def test_a_specification_it_cannot_read_fails_that_job_only(
    merger: SparkMerger, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    answer(monkeypatch, {"job-a": RESULT})
    outcomes = merge(merger, SPEC.to_json(), OTHER.to_json() | change)
    assert outcomes["job-a"] == RESULT.to_json()
    assert isinstance(outcomes["job-b"], BadAssignment)


def test_a_specification_of_another_job_is_refused(merger: SparkMerger, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, {})
    outcomes = merger.merge("b", {"job-b": SPEC.to_json()}, cancelled=lambda job: False, progress=lambda *_: None)
    assert isinstance(outcomes["job-b"], BadAssignment)


@pytest.mark.parametrize("trouble", [ConnectionRefusedError("no JVM"), {"job-a": SparkJobFailed("no JVM")}])
def test_trouble_with_a_dead_spark_is_the_end_of_the_merger(
    merger: SparkMerger, session: Session, monkeypatch: pytest.MonkeyPatch, trouble: Any
) -> None:
    answer(monkeypatch, trouble)
    session.is_alive = False
    with pytest.raises(MergerDied, match="no JVM"):
        merge(merger, SPEC.to_json())


def test_trouble_with_a_living_spark_is_the_jobs(merger: SparkMerger, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = SparkJobFailed("an executor was lost")
    answer(monkeypatch, {"job-a": failed})
    assert merge(merger, SPEC.to_json()) == {"job-a": failed}


def test_a_stopped_merger_starts_no_session_again(merger: SparkMerger, session: Session) -> None:
    merger.stop()
    assert not session.is_alive
    with pytest.raises(MergerDied):
        merger.start()
    with pytest.raises(MergerDied):
        merge(merger, SPEC.to_json())
