"""A catalog in the middle of its compaction, for pages: every state of everything."""

from __future__ import annotations

from typing import Any

from tests.webadmin.admin.rows import HOUR_MS, make_job, make_tenant
from webadmin.base.access.models import AuditEntry
from webadmin.base.database import dialect
from webadmin.lanes.catalog.api.models import ImportRun, ImportState
from webadmin.lanes.catalog.lane_models import BranchWatch, Collection, Compaction, CompactionPolicy
from webadmin.lanes.catalog.models import (
    Branch,
    BranchLoad,
    BranchToken,
    Commit,
    CondemnedFile,
    Repository,
    StagedEntry,
)
from webadmin.lanes.catalog.states import CompactionState, TokenState

MB = 1_000_000
HEAD = "8f6e2b7a" * 8
IMPORTS = (
    (ImportState.RUNNING, ""),
    (ImportState.RUNNING, ""),
    (ImportState.COMPLETED, ""),
    (ImportState.FAILED, "ingest has uncommitted changes: commit or reset them first"),
)
"""The second is silent."""


def make_repository(name: str = "lake", tenant: str = "acme", **columns: Any) -> Repository:
    """A repository with one clean branch."""
    make_tenant(tenant)
    told = {"storage_namespace": f"s3://{tenant}/{name}", "default_branch": "main", "created_ms": dialect.clock_ms()}
    repository = Repository.objects.create(tenant=tenant, name=name, **told | columns)
    Commit.objects.create(
        repository=repository, commit_id=HEAD, committer="jobs", metarange="0" * 64, created_ms=0, generation=1
    )
    make_branch(repository, "main")
    return repository


def make_branch(repository: Repository, name: str, *, sealed: int = 0, tombstones: int = 0, staged: int = 0) -> Branch:
    """A branch with so many sealed tokens, a minute apart, and so many rows staged over them."""
    now_ms = dialect.clock_ms()
    branch = Branch.objects.create(repository=repository, name=name, head=HEAD, staging=0, created_ms=now_ms)
    own = {"repository_id": repository.pk, "branch_id": branch.pk, "created_ms": now_ms}
    for number in range(sealed):
        BranchToken.objects.create(
            state=TokenState.SEALED,
            position=number,
            sealed_ms=now_ms - 60_000 * (sealed - number),
            row_count=12_345,
            tombstone_count=tombstones // sealed,
            **own,
        )
    token = BranchToken.objects.create(position=sealed, **own)
    Branch.objects.filter(pk=branch.pk).update(staging=token.pk)
    StagedEntry.objects.bulk_create(
        StagedEntry(
            branch_id=branch.pk,
            key=b"key-%d" % number,
            token_id=token.pk,
            identity=b"" if number < tombstones else b"i",
            payload=b"",
            written_ms=now_ms,
        )
        for number in range(staged)
    )
    if tombstones:
        BranchLoad.objects.create(branch_id=branch.pk, rows=5000, tombstones=tombstones, wasteful_lists=2)
    return branch


def make_compaction(branch: Branch, state: str = "published", **columns: Any) -> Compaction:
    """A compaction that was begun two minutes ago."""
    now_ms = dialect.clock_ms()
    told = {
        "cause": "tombstones 1500 of 1000, sealed_tokens 5 of 4",
        "build_id": 0,
        "base_version": {"head": HEAD, "snapshot": None, "sealed": ["1", "2"]},
        "begun_ms": now_ms - 120_000,
        "finished_ms": None if state == CompactionState.OPEN else now_ms - 60_000,
        "token_count": 2,
        "row_count": 24_690,
    }
    if state == CompactionState.PUBLISHED:
        told |= {"metarange": "7" * 64, "equals_head": False, "added": 7, "changed": 20, "removed": 1500}
        told |= {"bytes_changed": 2 * MB, "bytes_written": 9 * MB, "rows_read": 26_000}
    repository = branch.repository
    names = {"branch_id": branch.pk, "branch_name": branch.name}
    return Compaction.objects.create(repository=repository, state=state, **names, **told | columns)


def fill_catalog() -> Repository:
    """A repository with a quick branch, one that is being compacted and one whose compactions fail."""
    repository = make_repository()
    busy = make_branch(repository, "ingest", sealed=5, tombstones=1500, staged=3)
    slow = make_branch(repository, "experiments/very-long-name-of-a-branch", sealed=3)
    job = make_job("compact-1-R1", "leased", lane="catalog", tenant="acme")
    make_compaction(busy, "open", job=job)
    for state, why in (
        ("published", ""),
        ("lost", "lost head: the head moved"),
        ("failed", "ChecksumMismatch: range 12ab… is damaged"),
        ("ended", "nothing is staged"),
    ):
        make_compaction(slow, state, ended_because=why)
    BranchWatch.objects.create(
        branch=busy, is_wanted=True, held="a compaction of the branch is waiting or running", reason="tombstones …"
    )
    BranchWatch.objects.create(
        branch=slow, held="the branch is in its cooldown", lost_in_a_row=2, begun_ms=1, took_ms=60_000
    )
    CompactionPolicy.objects.create(repository=repository, tombstones=500)
    AuditEntry.objects.create(
        actor="anna",
        action="catalog_change_compaction",
        target=str(repository),
        detail={"before": {"tombstones": 1000}, "after": {"tombstones": 500}, "why": "listings are slow"},
    )
    CondemnedFile.objects.create(repository_id=repository.pk, file_id="12" * 32, since_ms=0)
    now_ms = dialect.clock_ms()
    for number, (state, error) in enumerate(IMPORTS):
        ImportRun.objects.create(
            repository=repository,
            branch="ingest",
            name=f"{number:032x}",
            state=state,
            error=error,
            objects_taken=1_000_000 // (1 + number),
            begun_ms=now_ms - HOUR_MS,
            heartbeat_ms=now_ms - (5 * 60_000 if number == 1 else 0),
        )
    for number, error in enumerate(("", "get 'ranges/aa/aa01': no such object")):
        Collection.objects.create(
            repository=repository,
            actor="control:catalog",
            begun_ms=now_ms - (3 - number) * HOUR_MS,
            finished_ms=now_ms - (3 - number) * HOUR_MS + 4000,
            files_seen=812,
            files_condemned=3,
            files_deleted=17,
            bytes_deleted=170 * MB,
            error=error,
        )
    return repository
