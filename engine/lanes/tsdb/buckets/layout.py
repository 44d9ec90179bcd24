"""Bucket layouts of Cortex and Thanos: keys of blocks, marks and index, and the tenant of a block.

``layout("cortex")`` and ``layout("thanos")`` return the known layouts.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from engine.core import ulids
from engine.core.errors import BadBlockName, LithifyError
from engine.formats.profile_block.container.object_names import check_tenant
from engine.formats.prometheus.meta import BlockMeta
from engine.lanes.tsdb.buckets.labels import drop_labels, external_labels, group_key, labels_hash, resolution_ms
from engine.lanes.tsdb.buckets.model import MarkKind
from engine.storage import ObjectStore

META = "meta.json"
INGESTER_LABEL = "__ingester_id__"
TENANT_LABELS_MAX = 120
ULID = re.compile(rf"[0-7][{ulids.ALPHABET}]{{{ulids.LENGTH - 1}}}")
NOT_IN_TENANT = re.compile(r"[^A-Za-z0-9_-]")
GLOBAL_MARKERS = "__markers__"
NOT_TENANTS = frozenset({GLOBAL_MARKERS, "scratch"})
"""Top-level folders of a Cortex bucket that are not tenants: marks of deleted tenants, and probes of Lithify."""
TENANT_DELETION = "tenant-deletion-mark.json"
"""The name of the mark in a tenant's ``markers/`` folder, or in newer builds in ``__markers__/<tenant>/``."""


class UnknownLayout(LithifyError):
    """There is no layout of this name; the message lists the valid names."""

    code = "unknown_layout"


@dataclass(frozen=True, slots=True)
class BucketFolders:
    """The folders of a bucket that contain blocks, ascending, and the number of ignored top-level names.

    ``deleted`` holds the folders of tenants marked for deletion at the top of the bucket, whether they exist or not.
    """

    folders: tuple[str, ...]
    ignored: int = 0
    deleted: frozenset[str] = frozenset()


class Layout(ABC):
    """The bucket layout of one system. Folders are ``""`` or end in ``/``; keys are relative to the bucket."""

    name: str
    has_index: bool
    """Whether readers use a bucket index."""
    has_visits: bool
    """Whether compactors write visit markers."""
    own_folders: frozenset[str] = frozenset()
    """Names beside the blocks that belong to the system itself."""

    def __init__(self, replica_labels: Sequence[str]) -> None:
        """Initialize the layout.

        ``replica_labels`` are the external labels that distinguish replicas of one stream; results do not have them.
        """
        self.replica_labels = tuple(replica_labels)

    @abstractmethod
    def folders(self, store: ObjectStore) -> BucketFolders:
        """Return the folders of the bucket; invalid names are counted and do not raise."""

    @abstractmethod
    def folder(self, tenant: str) -> str:
        """Return the folder of a tenant's blocks. Raises BadBlockName for an invalid tenant."""

    @abstractmethod
    def tenant(self, folder: str, meta: BlockMeta) -> str:
        """Return the tenant of a block. Raises BadObject if its labels are invalid."""

    @abstractmethod
    def marks_folder(self, folder: str) -> str:
        """Return the folder with copies of all marks, "" if there is none."""

    def labels(self, meta: BlockMeta) -> dict[str, str]:
        """Return the external labels that a merge of this block keeps."""
        return drop_labels(external_labels(meta), self.replica_labels)

    def group_key(self, meta: BlockMeta) -> str:
        """Return the key that blocks must share to be merged."""
        return group_key(self.labels(meta), resolution_ms(meta))

    def mark_keys(self, folder: str, ulid: str, kind: MarkKind) -> tuple[str, ...]:
        """Return the keys of a mark: in the block, then in the folder of all marks if the layout has one."""
        keys = [block_key(folder, ulid, mark_name(kind))]
        if marks := self.marks_folder(folder):
            keys.append(f"{marks}{ulid}-{mark_name(kind)}")
        return tuple(keys)

    def index_key(self, folder: str) -> str:
        """Return the key of the bucket index; valid only if ``has_index``."""
        return f"{folder}bucket-index.json.gz"

    def sync_status_key(self, folder: str) -> str:
        """Return the key of the bucket index's sync status; valid only if ``has_index``."""
        return f"{folder}bucket-index-sync-status.json"


class CortexLayout(Layout):
    """Cortex: ``<tenant>/<ulid>/…``, copies of marks in ``<tenant>/markers/``, one bucket index per tenant.

    Replicas differ only by the ingester label, and only in blocks of older builds.
    """

    name = "cortex"
    has_index = True
    has_visits = True
    own_folders = frozenset({"markers", "partitioned-groups"})

    def __init__(self) -> None:
        super().__init__((INGESTER_LABEL,))

    def folders(self, store: ObjectStore) -> BucketFolders:
        names = list(store.list_folders())
        good = tuple(name for name in names if _is_tenant(name[:-1]))
        deleted = _marked_tenants(store) if f"{GLOBAL_MARKERS}/" in names else frozenset()
        return BucketFolders(good, len(names) - len(good), deleted)

    def folder(self, tenant: str) -> str:
        if not _is_tenant(tenant):
            raise BadBlockName(tenant, "not a valid tenant of a Cortex bucket")
        return f"{tenant}/"

    def tenant(self, folder: str, meta: BlockMeta) -> str:
        return folder[:-1]

    def marks_folder(self, folder: str) -> str:
        return f"{folder}markers/"


class ThanosLayout(Layout):
    """Thanos: ``<ulid>/…`` at the top of the bucket; external labels determine the tenant.

    A tenant is a stream: its labels without replica labels, as ``<name>_<value>`` joined by dots, followed by the hash
    of the exact labels (16 hexadecimal digits). Characters that a tenant's name cannot contain become ``_``. The text
    may be truncated, the hash never is, so exactly equal labels have equal names.
    """

    name = "thanos"
    has_index = False
    has_visits = False

    def __init__(self, replica_labels: Sequence[str] = ()) -> None:
        super().__init__(replica_labels)

    def folders(self, store: ObjectStore) -> BucketFolders:
        return BucketFolders(("",))

    def folder(self, tenant: str) -> str:
        check_tenant(tenant)
        return ""

    def tenant(self, folder: str, meta: BlockMeta) -> str:
        labels = self.labels(meta)
        text = ".".join(NOT_IN_TENANT.sub("_", f"{name}_{value}") for name, value in labels.items())
        return f"{text[:TENANT_LABELS_MAX] or 'unlabelled'}.{labels_hash(labels):016x}"

    def marks_folder(self, folder: str) -> str:
        return ""


LAYOUTS: dict[str, type[CortexLayout] | type[ThanosLayout]] = {each.name: each for each in (CortexLayout, ThanosLayout)}


def layout(name: str, replica_labels: Sequence[str] = ()) -> Layout:
    """Return the layout of this name. ``replica_labels`` applies to Thanos buckets only. Raises UnknownLayout."""
    if name == ThanosLayout.name:
        return ThanosLayout(replica_labels)
    if name not in LAYOUTS:
        raise UnknownLayout(f"{name!r} is not a layout: use {' or '.join(LAYOUTS)}")
    return LAYOUTS[name]()


def block_key(folder: str, ulid: str, file: str) -> str:
    """Return the key of a block's file, in any layout. Raises BadBlockName if ``ulid`` is invalid."""
    ulids.parse(ulid)
    return f"{folder}{ulid}/{file}"


def mark_name(kind: MarkKind) -> str:
    """Return the file name of a mark."""
    return f"{kind.value}-mark.json"


def is_ulid(name: str) -> bool:
    """Return whether a folder's name is a block id. It is called for every object of a listing, so it must be fast."""
    return ULID.fullmatch(name) is not None


def _marked_tenants(store: ObjectStore) -> frozenset[str]:
    """Return the folders of the tenants that are marked for deletion at the top of the bucket."""
    prefix, suffix = f"{GLOBAL_MARKERS}/", f"/{TENANT_DELETION}"
    keys = (info.key.removeprefix(prefix) for info in store.list(prefix))
    return frozenset(f"{key.removesuffix(suffix)}/" for key in keys if key.endswith(suffix))


def _is_tenant(name: str) -> bool:
    try:
        check_tenant(name)
    except BadBlockName:
        return False
    # A ULID at the top of the bucket is a block of another layout, not a tenant.
    return name not in NOT_TENANTS and not is_ulid(name)
