"""Where each system keeps its blocks, marks and index, and what it calls a tenant.

``layout("cortex")`` and ``layout("thanos")`` are the two that are known.
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
from engine.lanes.tsdb.buckets.labels import external_labels, group_key, labels_hash, resolution_ms, without
from engine.lanes.tsdb.buckets.model import MarkKind
from engine.storage import ObjectStore

META = "meta.json"
INGESTER_LABEL = "__ingester_id__"
TENANT_WORDS_MAX = 120
ULID = re.compile(rf"[0-7][{ulids.ALPHABET}]{{{ulids.LENGTH - 1}}}")
NOT_IN_TENANT = re.compile(r"[^A-Za-z0-9_-]")
GLOBAL_MARKERS = "__markers__"
NOT_TENANTS = frozenset({GLOBAL_MARKERS, "scratch"})
"""Folders at the top of a Cortex bucket that are no tenant's: marks of deleted tenants, and what our probes write."""
TENANT_DELETION = "tenant-deletion-mark.json"
"""Lies in the marks of a tenant's folder, or of newer builds in ``__markers__/<tenant>/``."""


class UnknownLayout(LithifyError):
    """There is no layout of this name; the message lists those that there are."""

    code = "unknown_layout"


@dataclass(frozen=True, slots=True)
class BucketFolders:
    """The folders in which blocks of a bucket lie, ascending, and how many names at its top cannot be one.

    ``deleted`` are folders whose tenant is marked for deletion at the top of the bucket, whether they are there or not.
    """

    folders: tuple[str, ...]
    ignored: int = 0
    deleted: frozenset[str] = frozenset()


class Layout(ABC):
    """One system's way to lay out a bucket. Folders are ``""`` or end in ``/``; keys are relative to the bucket."""

    name: str
    has_index: bool
    """Whether readers want a bucket index."""
    has_visits: bool
    """Whether compactors leave visit markers."""
    own_folders: frozenset[str] = frozenset()
    """Names beside the blocks that are something else of the system's own."""

    def __init__(self, replica_labels: Sequence[str]) -> None:
        """``replica_labels`` are the external labels by which replicas of one stream differ; results lose them."""
        self.replica_labels = tuple(replica_labels)

    @abstractmethod
    def folders(self, store: ObjectStore) -> BucketFolders:
        """Return the folders that there are; names that cannot be one are counted, never an error."""

    @abstractmethod
    def folder(self, tenant: str) -> str:
        """Return the folder of a tenant's blocks; BadBlockName if it cannot be a tenant here."""

    @abstractmethod
    def tenant(self, folder: str, meta: BlockMeta) -> str:
        """Return whose block this is; BadObject if its labels are none."""

    @abstractmethod
    def marks_folder(self, folder: str) -> str:
        """Return the folder with the second copies of all marks, "" if there is none."""

    def labels(self, meta: BlockMeta) -> dict[str, str]:
        """Return the external labels that a merge of this block keeps."""
        return without(external_labels(meta), self.replica_labels)

    def group_key(self, meta: BlockMeta) -> str:
        """Return what is equal for blocks that may be merged."""
        return group_key(self.labels(meta), resolution_ms(meta))

    def mark_keys(self, folder: str, ulid: str, kind: MarkKind) -> tuple[str, ...]:
        """Return where a mark is written: in the block, then among all marks, if the layout has that."""
        keys = [block_key(folder, ulid, mark_name(kind))]
        if marks := self.marks_folder(folder):
            keys.append(f"{marks}{ulid}-{mark_name(kind)}")
        return tuple(keys)

    def index_key(self, folder: str) -> str:
        """Return the key of the bucket index; only where ``has_index``."""
        return f"{folder}bucket-index.json.gz"

    def sync_status_key(self, folder: str) -> str:
        """Return the key of what is said about the last update of the bucket index; only where ``has_index``."""
        return f"{folder}bucket-index-sync-status.json"


class CortexLayout(Layout):
    """``<tenant>/<ulid>/…``, copies of marks in ``<tenant>/markers/``, a bucket index per tenant.

    Replicas differ by the ingester's label only, and only in blocks of older builds.
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
            raise BadBlockName(tenant, "not a tenant of a Cortex bucket")
        return f"{tenant}/"

    def tenant(self, folder: str, meta: BlockMeta) -> str:
        return folder[:-1]

    def marks_folder(self, folder: str) -> str:
        return f"{folder}markers/"


class ThanosLayout(Layout):
    """``<ulid>/…`` at the top; whose a block is, its external labels say.

    A tenant is a stream: the labels, without those that are named as replicas' ones, as ``<name>_<value>`` joined by
    dots, followed by the hash of the exact labels (16 hex digits). What a tenant's name cannot hold becomes ``_``; the
    words may be cut, the hash never is, so that equal labels and only they have one name, whoever computes it and when.
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
        words = ".".join(NOT_IN_TENANT.sub("_", f"{name}_{value}") for name, value in labels.items())
        return f"{words[:TENANT_WORDS_MAX] or 'unlabelled'}.{labels_hash(labels):016x}"

    def marks_folder(self, folder: str) -> str:
        return ""


LAYOUTS: dict[str, type[CortexLayout] | type[ThanosLayout]] = {each.name: each for each in (CortexLayout, ThanosLayout)}


def layout(name: str, replica_labels: Sequence[str] = ()) -> Layout:
    """Return the layout of this name; ``replica_labels`` are those of a Thanos bucket: none unless they are named."""
    if name == ThanosLayout.name:
        return ThanosLayout(replica_labels)
    if name not in LAYOUTS:
        raise UnknownLayout(f"{name!r} is no layout: use {' or '.join(LAYOUTS)}")
    return LAYOUTS[name]()


def block_key(folder: str, ulid: str, file: str) -> str:
    """Return the key of a file of a block, in any layout; BadBlockName if ``ulid`` is none."""
    ulids.parse(ulid)
    return f"{folder}{ulid}/{file}"


def mark_name(kind: MarkKind) -> str:
    """Return the name of a mark's file."""
    return f"{kind.value}-mark.json"


def is_ulid(name: str) -> bool:
    """Tell whether a folder's name is a block's id. Listings ask it of every object, so nothing is taken apart here."""
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
    # A block at the top of the bucket: this is not the layout that was promised.
    return name not in NOT_TENANTS and not is_ulid(name)
