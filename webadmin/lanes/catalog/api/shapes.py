"""Build the SDK's models as JSON documents."""

from __future__ import annotations

from typing import Any

from engine.formats.ranges.model import Entry
from engine.formats.ranges.object_entry import ObjectEntry
from engine.lanes.catalog.diff import Change
from engine.lanes.catalog.three_way import Compared
from engine.lanes.catalog.view import CommonPrefix
from webadmin.lanes.catalog.models import Branch, Commit, Repository, Tag
from webadmin.lanes.catalog.object_places import physical_address_of

OBJECT, COMMON_PREFIX = "object", "common_prefix"


def repository_of(repository: Repository) -> dict[str, Any]:
    """Return a ``Repository``."""
    return {
        "id": repository.name,
        "creation_date": repository.created_ms // 1000,
        "default_branch": repository.default_branch,
        "storage_id": "",
        "storage_namespace": repository.storage_namespace,
        "read_only": repository.is_read_only,
    }


def ref_of(branch: Branch) -> dict[str, str]:
    """Return the ``Ref`` of a branch."""
    return {"id": branch.name, "commit_id": branch.head}


def tag_of(tag: Tag) -> dict[str, str]:
    """Return the ``Ref`` of a tag."""
    return {"id": tag.name, "commit_id": tag.commit_id}


def commit_of(commit: Commit) -> dict[str, Any]:
    """Return a ``Commit``."""
    return {
        "id": commit.commit_id,
        "parents": list(commit.parents),
        "committer": commit.committer,
        "message": commit.message,
        "creation_date": commit.created_ms // 1000,
        "meta_range_id": commit.metarange,
        "metadata": commit.metadata,
        "generation": commit.generation,
        "version": commit.version,
    }


def stats_of(repository: Repository, entry: Entry, *, with_metadata: bool = True) -> dict[str, Any]:
    """Return the ``ObjectStats`` of an entry."""
    stored = ObjectEntry.from_payload(entry.payload)
    return {
        "path": entry.key.decode(),
        "path_type": OBJECT,
        "physical_address": physical_address_of(repository, stored),
        "checksum": stored.checksum,
        "size_bytes": stored.size,
        "mtime": int(stored.written_at),
        "content_type": stored.content_type,
    } | ({"metadata": stored.metadata} if with_metadata else {})


def listed(repository: Repository, item: Entry | CommonPrefix, *, with_metadata: bool) -> dict[str, Any]:
    """Return an item of a listing; the SDK's model requires all fields for common prefixes, too."""
    if isinstance(item, Entry):
        return stats_of(repository, item, with_metadata=with_metadata)
    return {
        "path": item.key.decode(),
        "path_type": COMMON_PREFIX,
        "physical_address": "",
        "checksum": "",
        "size_bytes": 0,
        "mtime": 0,
    }


def diff_of(item: Change | Compared | CommonPrefix) -> dict[str, Any]:
    """Return the ``Diff`` of a key, or of all keys below a common prefix."""
    if isinstance(item, CommonPrefix):
        return {"type": "prefix_changed", "path": item.key.decode(), "path_type": COMMON_PREFIX, "size_bytes": 0}
    change = item.change if isinstance(item, Compared) else item
    shown = change.after or change.before
    return {
        "type": "conflict" if isinstance(item, Compared) and item.is_conflict else change.kind,
        "path": change.key.decode(),
        "path_type": OBJECT,
        "size_bytes": ObjectEntry.from_payload(shown.payload).size if shown else 0,
    }
