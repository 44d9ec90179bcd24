"""The control tasks that let data go."""

from __future__ import annotations

from tasks.beat import PERIODIC_JOBS, app
from tasks.lanes.profiles.manifest import RETENTION_TASK, REWRITE_TASK
from tasks.lanes.profiles.retention import apply_retention, rewrite_masked
from tests.block_factory import block_meta, ulid
from tests.webadmin.service import Service
from webadmin.base.access.models import AuditEntry
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.profiles.services.delete_requests import DeletionTarget, request_deletion

DAY_MS = 24 * 3600 * 1000


def test_old_data_goes_by_itself_and_twice_is_harmless(real_service: Service) -> None:
    old = block_meta(ulid(real_service.clock.now_ms - 40 * DAY_MS), tenant="acme", level=3)
    real_service.add(old, any_age=True)
    apply_retention()
    assert real_service.states() == {"dropped": 1}
    assert AuditEntry.objects.get(action="retention").actor == "control:retention"
    before = real_service.dump()
    apply_retention()
    assert real_service.dump() == before


def test_deleted_data_is_rewritten_by_itself(real_service: Service) -> None:
    real_service.add(block_meta(ulid(real_service.clock.now_ms), tenant="acme", level=3))
    request_deletion(DeletionTarget(tenant="acme"), context=ActionContext(actor="test"))
    rewrite_masked()
    assert real_service.states() == {"dropped": 1}


def test_a_new_installation_runs_both() -> None:
    app.loader.import_default_modules()
    assert {RETENTION_TASK, REWRITE_TASK} <= {job.task for job in PERIODIC_JOBS} & set(app.tasks)
