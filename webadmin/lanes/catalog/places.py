"""Where a repository's files lie in the object store, and what this process keeps of them in memory."""

from __future__ import annotations

from django.conf import settings

from engine.formats.ranges.metarange import Metarange
from engine.lanes.catalog.files import CatalogFiles
from engine.lanes.catalog.state_reader import StateReader
from engine.storage import ObjectStore, cached_store
from engine.storage.section_cache import SectionCache
from webadmin.lanes.catalog.models import Repository

METARANGES_BYTES = 64 << 20
INDEXES_BYTES = 64 << 20
RANGE_BYTES = 400
"""About what the description of a range takes in memory, beside its keys."""

_metaranges = SectionCache(METARANGES_BYTES)
_indexes = SectionCache(INDEXES_BYTES)


def catalog_store() -> ObjectStore:
    """Return the store of all catalogs."""
    return cached_store(settings.OBJECT_STORE_URL)


def folder_of(repository: Repository) -> str:
    """Return the folder of everything of a repository; it ends in a slash. It is never used by another repository."""
    return f"catalog/{repository.tenant}/{repository.pk}/"


def prefix_of(repository: Repository) -> str:
    """Return the folder of a repository's ranges and metaranges; it ends in a slash."""
    return folder_of(repository) + "meta/"


def data_prefix_of(repository: Repository) -> str:
    """Return the folder of the objects that were uploaded through us; it ends in a slash."""
    return folder_of(repository) + "data/"


def files_of(repository: Repository) -> CatalogFiles:
    """Return a repository's ranges and metaranges."""
    return CatalogFiles(catalog_store(), prefix_of(repository))


def metarange_of(repository: Repository, metarange_id: str) -> Metarange:
    """Return a metarange, from memory if it was read before. Raises ObjectNotFound, BadObject."""
    files = files_of(repository)

    def read() -> tuple[Metarange, int]:
        found = files.read_metarange(metarange_id)
        return found, sum(RANGE_BYTES + len(info.first_key) + len(info.last_key) for info in found.ranges)

    return _metaranges.get((files.store.url, files.prefix, metarange_id), read)


def reader_of(repository: Repository, metarange_id: str) -> StateReader:
    """Return a reader of a state. Raises ObjectNotFound, BadObject."""
    return reader_over(repository, metarange_of(repository, metarange_id))


def reader_over(repository: Repository, metarange: Metarange) -> StateReader:
    """Return a reader of a state whose metarange is at hand."""
    return StateReader(files_of(repository), metarange, _indexes)
