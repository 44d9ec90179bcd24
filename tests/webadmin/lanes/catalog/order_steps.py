"""The compactor of ``main``, step by step, beside what others do on connections of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from django.db import connection

from engine.formats.ranges.metarange import Metarange
from engine.lanes.catalog.plan.branch import BranchRecord, BranchUpdate, Refusal, base_version_of
from tests.webadmin.lanes.catalog.short import Catalog, new_catalog
from webadmin.lanes.catalog.models import (
    BranchToken,
    Build,
    StagedEntry,
    StagedInterval,
)
from webadmin.lanes.catalog.places import reader_of, reader_over
from webadmin.lanes.catalog.services.branches import find_branch
from webadmin.lanes.catalog.services.commit_branch import build_state
from webadmin.lanes.catalog.services.compaction.builds import begin_build, end_build
from webadmin.lanes.catalog.services.diffs import are_equal
from webadmin.lanes.catalog.services.publish import publish_compaction
from webadmin.lanes.catalog.services.records import seal_branch
from webadmin.lanes.catalog.services.staged_rows import metarange_of_commit
from webadmin.lanes.catalog.states import TokenState, Why

INSERT = 'INSERT INTO "catalog_stagedentry"'
PUT = "INSERT INTO catalog_stagedentry"
TAKE_BACK = "DELETE FROM catalog_stagedentry"
LOOK_AGAIN = "WHERE b.id = %s"
"""How a writer looks at the record again."""
ROWS = 'FROM "catalog_stagedentry"'
PUBLISH = "catalog_condemnedfile"
"""What a build that is about to be published looks at first, in its transaction's last part ..."""
MARK = 'UPDATE "catalog_condemnedfile"'
"""How a collection says that files are being deleted, and again that they are gone."""
BEGIN_BUILD = 'INSERT INTO "catalog_build"'


def sweep() -> None:
    """Delete the rows of all tokens that no record names."""
    retired = list(BranchToken.objects.filter(state=TokenState.RETIRED).values_list("pk", flat=True))
    StagedEntry.objects.filter(token_id__in=retired).delete()
    StagedInterval.objects.filter(token_id__in=retired).delete()


def is_waited_for_a_lock() -> bool:
    """Say whether a connection to PostgreSQL waits for a lock of another."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
        return cursor.fetchone() is not None


@dataclass
class Compactor:
    """A compaction of ``main``, step by step."""

    catalog: Catalog
    record: BranchRecord | None = None
    build_row: Build | None = None
    made: Metarange | None = None

    def seal(self) -> Compactor:
        branch = find_branch(self.catalog.repository, "main")
        self.record = seal_branch(branch.pk, why=Why.COMPACTION)
        assert self.record
        self.build_row = begin_build(self.catalog.repository, Why.COMPACTION, base_version=base_version_of(self.record))
        return self

    def build(self) -> Compactor:
        assert self.record
        self.made = build_state(self.catalog.repository, base_version_of(self.record))
        return self

    def publish(self) -> BranchUpdate | Refusal:
        assert self.record
        assert self.made
        repository = self.catalog.repository
        head = reader_of(repository, metarange_of_commit(repository, self.record.head))
        moved = self.publish_anyhow(equals_head=are_equal(head, reader_over(repository, self.made)))
        self.end()
        sweep()
        return moved

    def publish_anyhow(self, *, equals_head: bool = False) -> BranchUpdate | Refusal:
        """Publish without a look at the files, and without what is done behind it."""
        assert self.record
        assert self.build_row
        assert self.made
        return publish_compaction(base_version_of(self.record), self.build_row, self.made, equals_head=equals_head)

    def end(self) -> None:
        assert self.build_row
        end_build(self.build_row)

    def run(self) -> None:
        """All that is left to do."""
        if not self.record:
            self.seal()
        if not self.made:
            self.build()
        assert isinstance(self.publish(), BranchUpdate)


def with_committed(catalog: Catalog, **values: str) -> Compactor:
    """A branch with a commit of these values."""
    catalog.puts(**values)
    catalog.commit()
    return Compactor(catalog)


def every_order(orders: Iterable[Callable[[Catalog], None]]) -> None:
    """Force each order in a repository of its own."""
    for number, order in enumerate(orders):
        try:
            order(new_catalog(name=f"order-{number}"))
        except Exception as error:
            raise AssertionError(order.__name__) from error
