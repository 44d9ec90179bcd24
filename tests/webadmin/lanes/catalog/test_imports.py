"""Importing objects that lie in a tenant's folder, and where objects may lie at all."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from django.conf import LazySettings

from engine.formats.ranges.object_entry import ObjectEntry
from engine.storage import ObjectNotFound
from tests.webadmin.lanes.catalog.short import ORDER, SAID, Catalog, value
from webadmin.base.access.tenant_places import place_of_tenant
from webadmin.lanes.catalog.errors import AddressRefused, DirtyBranch, ImportRefused
from webadmin.lanes.catalog.object_places import address_of, object_at, physical_address_of
from webadmin.lanes.catalog.places import catalog_store, data_prefix_of
from webadmin.lanes.catalog.services.import_objects import ImportSource, import_objects
from webadmin.lanes.catalog.services.read_objects import get_entry
from webadmin.lanes.tables.models import DataSource
from webadmin.lanes.tsdb.models import Bucket


@pytest.fixture
def folder(catalog: Catalog, tmp_path: Path, settings: LazySettings) -> str:
    """A folder of the tenant with some objects; its URL."""
    settings.TABLES_URL = f"file://{tmp_path}/tables"
    place = place_of_tenant("acme")
    for name in ("data/a", "data/b", "data2/c", "other"):
        path = Path(place.removeprefix("file://")) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return place


def objects(catalog: Catalog) -> set[str]:
    return set(catalog.visible())


@pytest.mark.row("B59")
def test_an_import_of_a_prefix_replaces_its_keys(catalog: Catalog, folder: str) -> None:
    for key in ("a", "in/old", "in2", "z"):
        catalog.put(key, "x")
    sources = [
        ImportSource(url=f"{folder}/data/", destination="in/"),
        ImportSource(url=f"{folder}/other", destination="z", is_prefix=False),
    ]
    with pytest.raises(DirtyBranch):
        import_objects(catalog.repository, "main", sources, SAID, order=ORDER)
    catalog.commit()
    commit = import_objects(catalog.repository, "main", sources, SAID, order=ORDER)
    assert objects(catalog) == {"a", "in/a", "in/b", "in2", "z"}
    assert commit.parents == [catalog.head("main~1").commit_id]
    entry = ObjectEntry.from_payload(get_entry(catalog.repository, "main", b"in/b").payload)
    assert (entry.address, entry.size, entry.is_relative) == (f"{folder}/data/b", 6, False)
    store, key = object_at(catalog.repository, entry)
    assert store.get(key) == b"data/b"
    assert physical_address_of(catalog.repository, entry) == f"{folder}/data/b"


def test_nothing_comes_from_outside_of_the_tenants_folder(catalog: Catalog, folder: str) -> None:
    for url in ("file:///etc/", folder.replace("acme", "globex") + "/", f"{folder}/../globex/x", "s3://acme/x", ""):
        with pytest.raises(AddressRefused):
            import_objects(catalog.repository, "main", [ImportSource(url=url, destination="")], SAID, order=ORDER)
    two = [ImportSource(url=f"{folder}/data/a", destination="k", is_prefix=False)] * 2
    for sources in ([], two):
        with pytest.raises(ImportRefused):
            import_objects(catalog.repository, "main", sources, SAID, order=ORDER)
    assert objects(catalog) == set()


def test_nothing_comes_from_the_place_of_a_table_or_bucket(catalog: Catalog, folder: str) -> None:
    """Its compaction deletes the objects that it replaced, whatever a commit references."""
    DataSource.objects.create(tenant="acme", name="events", url=f"{folder}/data", time_column="ts")
    Bucket.objects.create(name="metrics", url=f"{folder}/blocks", layout="thanos")
    for url, named in (
        ("data/a", "table acme/events"),
        ("data/", "table acme/events"),
        ("data", "table acme/events"),
        ("da", "table acme/events"),
        ("", "another store"),
        ("data/no/object/yet/", "table acme/events"),
        ("blocks/01/", "another store"),
        ("bl", "another store"),
    ):
        source = ImportSource(url=f"{folder}/{url}", destination="in/", is_prefix=not url.endswith("a/a"))
        with pytest.raises(ImportRefused, match=f"the place of {named}, where compaction deletes"):
            import_objects(catalog.repository, "main", [source], SAID, order=ORDER)
    assert objects(catalog) == set()
    sources = [
        ImportSource(url=f"{folder}/data2/", destination="in/"),
        ImportSource(url=f"{folder}/other", destination="z", is_prefix=False),
    ]
    import_objects(catalog.repository, "main", sources, SAID, order=ORDER)
    assert objects(catalog) == {"in/c", "z"}


def test_a_single_object_replaces_its_own_key_only_and_names_are_kept(catalog: Catalog, folder: str) -> None:
    strange = "100%25 a?b#c"
    (Path(folder.removeprefix("file://")) / strange).write_bytes(b"x")
    catalog.put("k", "x")
    catalog.put("kept", "x")
    catalog.commit()
    told: list[int] = []
    source = ImportSource(url=f"{folder}/{quote(strange)}", destination="k", is_prefix=False)
    import_objects(catalog.repository, "main", [source], SAID, order=ORDER, progress=told.append)
    assert objects(catalog) == {"k", "kept"}
    assert told == [1]
    store, key = object_at(catalog.repository, ObjectEntry.from_payload(get_entry(catalog.repository, "main", b"k")[2]))
    assert (key, store.get(key)) == (strange, b"x")
    missing = ImportSource(url=f"{folder}/none", destination="k", is_prefix=False)
    with pytest.raises(ImportRefused, match="nothing lies"):
        import_objects(catalog.repository, "main", [missing], SAID, order=ORDER)


def test_an_import_can_be_stopped_on_its_way(catalog: Catalog, folder: str) -> None:
    def stop(taken: int) -> None:
        raise ZeroDivisionError

    source = ImportSource(url=f"{folder}/", destination="in/")
    with pytest.raises(ZeroDivisionError):
        import_objects(catalog.repository, "main", [source], SAID, order=ORDER, progress=stop)
    assert objects(catalog) == set()


def test_an_address_is_the_repositorys_or_the_tenants(catalog: Catalog, folder: str) -> None:
    own = catalog_store().url + "/" + data_prefix_of(catalog.repository)
    assert address_of(catalog.repository, f"{own}x/y%20z") == ("data/x/y z", True)
    assert address_of(catalog.repository, f"{folder}/other") == (f"{folder}/other", False)
    for address in (
        f"{own}../meta/x",
        own.replace("data", "meta"),
        f"{own[:-1]}2/x",
        f"{own}%2e%2e/x",
        "/etc/passwd",
        "",
    ):
        with pytest.raises(AddressRefused):
            address_of(catalog.repository, address)
    with pytest.raises(AddressRefused):
        object_at(catalog.repository, value("x", "meta/ranges"))


def test_links_in_the_tenants_folder_are_not_imported(catalog: Catalog, folder: str, tmp_path: Path) -> None:
    place = Path(folder.removeprefix("file://"))
    (tmp_path / "secret").write_bytes(b"another tenant's")
    (place / "data" / "link").symlink_to(tmp_path / "secret")
    (place / "data" / "linked").symlink_to(tmp_path)
    source = ImportSource(url=f"{folder}/data/", destination="in/")
    import_objects(catalog.repository, "main", [source], SAID, order=ORDER)
    assert objects(catalog) == {"in/a", "in/b"}
    for key in ("link", "linked/secret"):
        single = ImportSource(url=f"{folder}/data/{key}", destination="k", is_prefix=False)
        with pytest.raises(ImportRefused):
            import_objects(catalog.repository, "main", [single], SAID, order=ORDER)


def test_an_imported_object_that_became_a_link_is_not_read(catalog: Catalog, folder: str, tmp_path: Path) -> None:
    source = ImportSource(url=f"{folder}/data/", destination="in/")
    import_objects(catalog.repository, "main", [source], SAID, order=ORDER)
    imported = Path(folder.removeprefix("file://")) / "data" / "a"
    imported.unlink()
    (tmp_path / "secret").write_bytes(b"data/a")
    imported.symlink_to(tmp_path / "secret")
    entry = ObjectEntry.from_payload(get_entry(catalog.repository, "main", b"in/a").payload)
    store, key = object_at(catalog.repository, entry)
    with pytest.raises(ObjectNotFound, match="symbolic link"):
        store.get(key)
