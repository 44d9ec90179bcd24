"""A repository with one-letter values: what tests do to it in one word each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.formats.ranges.model import Entry
from engine.formats.ranges.object_entry import ObjectEntry
from engine.lanes.catalog.diff import Change
from engine.lanes.catalog.plan.branch import BranchRecord, BranchUpdate, Refusal, base_version_of
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.catalog.models import Commit, Repository
from webadmin.lanes.catalog.places import reader_of, reader_over
from webadmin.lanes.catalog.services.branches import create_branch, find_branch
from webadmin.lanes.catalog.services.commit_branch import build_state, commit_branch
from webadmin.lanes.catalog.services.commits import NewCommit
from webadmin.lanes.catalog.services.compaction.builds import open_build
from webadmin.lanes.catalog.services.diffs import are_equal, diff_branch
from webadmin.lanes.catalog.services.move_heads import merge_into
from webadmin.lanes.catalog.services.publish import publish_compaction
from webadmin.lanes.catalog.services.read_objects import get_entry, list_entries
from webadmin.lanes.catalog.services.records import read_record, seal_branch
from webadmin.lanes.catalog.services.refs import commit_at
from webadmin.lanes.catalog.services.repositories import NewRepository, create_repository
from webadmin.lanes.catalog.services.staged_rows import metarange_of_commit
from webadmin.lanes.catalog.services.write_objects import delete_entry, put_entry
from webadmin.lanes.catalog.states import Why

CONTEXT = ActionContext(actor="tester", why="a test")
SAID = NewCommit(committer="tester", message="m", metadata={"k": "v"})


def value(letter: str, address: str = "") -> ObjectEntry:
    """A value that is known by its letter; the address says nothing about whether it is the same."""
    return ObjectEntry(address=address or letter, size=1, checksum=letter, written_at=0.0)


def letter(entry: Entry) -> str:
    """The letter of a value."""
    return ObjectEntry.from_payload(entry.payload).checksum


@dataclass
class Catalog:
    """A repository and what tests do to its branches; ``main`` unless another is named."""

    repository: Repository

    def put(self, key: str, letter: str, branch: str = "main", **condition: Any) -> None:
        put_entry(self.repository, branch, key.encode(), value(letter), **condition)

    def puts(self, branch: str = "main", **values: str) -> None:
        for key, each in values.items():
            self.put(key, each, branch)

    def delete(self, key: str, branch: str = "main") -> None:
        delete_entry(self.repository, branch, key.encode())

    def get(self, key: str, ref: str = "main") -> str:
        return letter(get_entry(self.repository, ref, key.encode()))

    def visible(self, ref: str = "main", amount: int = 1000) -> dict[str, str]:
        """All entries, page by page."""
        found: dict[str, str] = {}
        after: bytes | None = b""
        while after is not None:
            page = list_entries(self.repository, ref, after=after, amount=amount)
            found |= {item.key.decode(): letter(item) for item in page.items if isinstance(item, Entry)}
            after = page.after
        return found

    def committed(self, branch: str = "main") -> dict[str, str]:
        return self.visible(branch + "@")

    def diff(self, branch: str = "main") -> list[tuple[str, str]]:
        """Uncommitted changes: kind and key."""
        items = diff_branch(self.repository, branch).items
        return [(each.kind, each.key.decode()) for each in items if isinstance(each, Change)]

    def commit(self, branch: str = "main", **told: Any) -> Commit:
        return commit_branch(self.repository, branch, _said(told), context=CONTEXT)

    def merge(self, source: str, branch: str = "main", **told: Any) -> Commit:
        strategy, squash = told.pop("strategy", None), told.pop("is_squashed", False)
        return merge_into(
            self.repository, source, branch, _said(told), strategy=strategy, is_squashed=squash, context=CONTEXT
        )

    def branch(self, name: str, source: str = "main") -> None:
        create_branch(self.repository, name, source, context=CONTEXT)

    def record(self, branch: str = "main") -> BranchRecord:
        record = read_record(find_branch(self.repository, branch).pk)
        assert record is not None
        return record

    def head(self, ref: str = "main") -> Commit:
        return commit_at(self.repository, ref)

    def compact(self, branch: str = "main") -> BranchUpdate | Refusal:
        """Do what the compactor does, in this process."""
        record = seal_branch(find_branch(self.repository, branch).pk, why=Why.COMPACTION)
        return Refusal.GONE if record is None else self.fold(record)

    def fold(self, record: BranchRecord) -> BranchUpdate | Refusal:
        """Build a sealed record's base version and publish it."""
        base_version = base_version_of(record)
        with open_build(self.repository, Why.COMPACTION, branch_id=int(record.uid), base_version=base_version) as build:
            made = build_state(self.repository, base_version)
            head = reader_of(self.repository, metarange_of_commit(self.repository, record.head))
            equals = are_equal(head, reader_over(self.repository, made))
            return publish_compaction(base_version, build, made, equals_head=equals)


def _said(told: Mapping[str, Any]) -> NewCommit:
    return NewCommit(**({"committer": "tester", "message": "m"} | dict(told)))


def new_catalog(tenant: str = "acme", name: str = "repo") -> Catalog:
    """A repository with an empty branch ``main``."""
    new = NewRepository(tenant=tenant, name=name, storage_namespace=f"local://{name}")
    return Catalog(create_repository(new, context=CONTEXT))


def keys_of(items: Sequence[Any]) -> list[str]:
    """The keys of a page's items."""
    return [item.key.decode() for item in items]
