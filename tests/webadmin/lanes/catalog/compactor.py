"""A compactor node beside a repository: it folds what its jobs tell it, with the engine's own code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.lanes.catalog import compact_job
from engine.lanes.catalog.jobs import CatalogCompactResult, CatalogCompactSpec
from engine.protocol.messages import FailureReason, JobUpdate, UpdateStatus
from tests.webadmin.lanes.catalog.short import Catalog
from tests.webadmin.service import FakeWorker, Service
from webadmin.lanes.catalog.lane_models import BranchWatch, Compaction, CompactionPolicy
from webadmin.lanes.catalog.places import catalog_store
from webadmin.lanes.catalog.services.branches import find_branch
from webadmin.lanes.catalog.services.compaction.sense_branches import SenseReport, sense_branches


@dataclass
class Compactor:
    """The sensor, the schedule and one node; ``node`` is a worker's name on the schedule."""

    service: Service
    catalog: Catalog
    node: FakeWorker

    def set(self, **settings: Any) -> None:
        """Set what the sensor goes by; no thresholds but those that are given."""
        off: dict[str, Any] = dict.fromkeys(
            ("tombstones", "sealed_rows", "sealed_tokens", "sealed_age_seconds", "wasteful_lists"), 0
        )
        CompactionPolicy.objects.update_or_create(repository=self.catalog.repository, defaults=off | settings)

    def sense(self) -> SenseReport:
        return sense_branches()

    def take(self, worker: FakeWorker | None = None) -> CatalogCompactSpec:
        """Poll for the one job that waits."""
        [spec] = self.polled(worker)
        return spec

    def polled(self, worker: FakeWorker | None = None) -> list[CatalogCompactSpec]:
        """Poll for work."""
        return [CatalogCompactSpec.from_json(given.spec) for given in (worker or self.node).poll().assignments]

    def build(self, spec: CatalogCompactSpec) -> CatalogCompactResult:
        return compact_job.run(spec, catalog_store())

    def report(self, spec: CatalogCompactSpec, result: CatalogCompactResult, worker: FakeWorker | None = None) -> None:
        """Tell the schedule of a finished job."""
        worker = worker or self.node
        token = worker.held[spec.job].token
        update = JobUpdate(job=spec.job, token=token, status=UpdateStatus.SUCCESS, result=result.to_json())
        worker.poll(update, capacity=0)

    def fail(self, spec: CatalogCompactSpec) -> None:
        """Give a job back with an error."""
        reason = FailureReason(error_class="ChecksumMismatch", message="a damaged range", object="ranges/aa/aa01")
        self.node.poll(self.node.released(spec.job, reason), capacity=0)

    def fail_for_good(self) -> None:
        """Let every run of the job fail, until it is evicted."""
        for _ in range(4):  # three failures are allowed
            self.fail(self.take())
            self.service.clock.advance(120)
        assert self.polled() == []

    def finish(self) -> CatalogCompactResult:
        """Take the job, build it and report it."""
        spec = self.take()
        result = self.build(spec)
        self.report(spec, result)
        return result

    def last(self) -> Compaction:
        found = Compaction.objects.first()
        assert found is not None
        return found

    def watch(self, branch: str = "main") -> BranchWatch:
        return BranchWatch.objects.get(branch=find_branch(self.catalog.repository, branch))
