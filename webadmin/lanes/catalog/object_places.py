"""Location of an entry's object: in the folder of its repository, or in the folder of its tenant.

An address in the repository's folder is relative, ``data/…``. In the tenant's folder (in which it may also place
tables) it is a complete URL: imported objects are not copied. Clients receive the URL of the object in both cases, so
that clients with credentials for the store can access it directly.
"""

from __future__ import annotations

from urllib.parse import quote, unquote, urlsplit

from engine.formats.ranges.object_entry import ObjectEntry
from engine.storage import InvalidKey, ObjectStore, cached_store
from engine.storage.keys import check_key
from webadmin.base.access.tenant_places import place_of_tenant, shown_place_of_tenant
from webadmin.lanes.catalog.errors import AddressRefused
from webadmin.lanes.catalog.models import Repository
from webadmin.lanes.catalog.places import catalog_store, data_prefix_of, folder_of

DATA = "data/"
ADDRESS_SHOWN_MAX = 200


def address_of(repository: Repository, physical_address: str) -> tuple[str, bool]:
    """Return the address in an entry for a physical address, and whether it is relative. Raises AddressRefused."""
    own = url_in(catalog_store().url, data_prefix_of(repository))
    if not physical_address.startswith(own):
        key_in_tenants_folder(repository, physical_address)
        return physical_address, False
    address = DATA + unquote(physical_address.removeprefix(own))
    try:
        check_key("link", address)
    except InvalidKey as error:
        raise AddressRefused(f"{physical_address[:ADDRESS_SHOWN_MAX]!r}: {error.reason}") from error
    return address, True


def physical_address_of(repository: Repository, value: ObjectEntry) -> str:
    """Return the URL of an object."""
    return url_in(catalog_store().url, folder_of(repository) + value.address) if value.is_relative else value.address


def object_at(repository: Repository, value: ObjectEntry) -> tuple[ObjectStore, str]:
    """Return the store and the key of an entry's object. Raises AddressRefused."""
    if not value.is_relative:
        return tenants_store(repository), key_in_tenants_folder(repository, value.address)
    if not value.address.startswith(DATA):
        raise AddressRefused(f"{value.address[:ADDRESS_SHOWN_MAX]!r} is not among the repository's objects")
    return catalog_store(), folder_of(repository) + value.address


def tenants_store(repository: Repository) -> ObjectStore:
    """Return the store of the folder from which the repository's tenant may import."""
    return cached_store(place_of_tenant(repository.tenant))


def key_in_tenants_folder(repository: Repository, url: str, *, is_prefix: bool = False) -> str:
    """Return the key of a URL in the tenant's store; with ``is_prefix`` a prefix of keys. Raises AddressRefused."""
    place = place_of_tenant(repository.tenant)
    below, here = urlsplit(place), urlsplit(url)
    folder, path = unquote(below.path).rstrip("/") + "/", unquote(here.path)
    is_same_store = (below.scheme or "file", below.netloc) == (here.scheme or "file", here.netloc)
    if not is_same_store or here.query or here.fragment or not path.startswith(folder):
        allowed = shown_place_of_tenant(repository.tenant)
        raise AddressRefused(f"{url[:ADDRESS_SHOWN_MAX]!r}: objects of {repository.tenant} are in {allowed}")
    key = path.removeprefix(folder)
    try:
        if not (is_prefix and not key):
            check_key("import", key + "x" if is_prefix else key)
    except InvalidKey as error:
        raise AddressRefused(f"{url[:ADDRESS_SHOWN_MAX]!r}: {error.reason}") from error
    return key


def url_in(store_url: str, key: str) -> str:
    """Return the URL of a key in a store, without connection parameters."""
    return f"{urlsplit(store_url)._replace(query='').geturl().rstrip('/')}/{quote(key)}"
