"""Locations of a repository's files in the object store, and their in-process cache."""

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
"""Approximate memory of a range's description without its keys, in bytes."""

_metaranges = SectionCache(METARANGES_BYTES)
_indexes = SectionCache(INDEXES_BYTES)


def catalog_store() -> ObjectStore:
    """Return the store of all catalogs."""
    return cached_store(settings.OBJECT_STORE_URL)


def folder_of(repository: Repository) -> str:
    """Return the folder of all files of a repository, with a trailing slash. Another repository never uses it."""
    return f"catalog/{repository.tenant}/{repository.pk}/"


def prefix_of(repository: Repository) -> str:
    """Return the folder of a repository's ranges and metaranges, with a trailing slash."""
    return folder_of(repository) + "meta/"


def data_prefix_of(repository: Repository) -> str:
    """Return the folder of the objects that were uploaded through the API, with a trailing slash."""
    return folder_of(repository) + "data/"


def files_of(repository: Repository) -> CatalogFiles:
    """Return the access to a repository's ranges and metaranges."""
    return CatalogFiles(catalog_store(), prefix_of(repository))


def metarange_of(repository: Repository, metarange_id: str) -> Metarange:
    """Return a metarange, cached if it was read before. Raises ObjectNotFound, BadObject."""
    files = files_of(repository)

    def read() -> tuple[Metarange, int]:
        found = files.read_metarange(metarange_id)
        return found, sum(RANGE_BYTES + len(info.first_key) + len(info.last_key) for info in found.ranges)

    return _metaranges.get((files.store.url, files.prefix, metarange_id), read)


def reader_of(repository: Repository, metarange_id: str) -> StateReader:
    """Return a reader of a state. Raises ObjectNotFound, BadObject."""
    return reader_over(repository, metarange_of(repository, metarange_id))


def reader_over(repository: Repository, metarange: Metarange) -> StateReader:
    """Return a reader of a state from its decoded metarange."""
    return StateReader(files_of(repository), metarange, _indexes)
