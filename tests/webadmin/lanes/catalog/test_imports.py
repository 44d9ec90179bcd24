"""Importing objects that lie in a tenant's folder, and where objects may lie at all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import pytest
from django.conf import LazySettings

from engine.formats.ranges.object_entry import ObjectEntry
from engine.storage import ObjectNotFound
from tests.webadmin.lanes.catalog.short import CONTEXT, SAID, Catalog, value
from webadmin.base.access.tenant_places import place_of_tenant
from webadmin.embedded.deployment.findings import Level
from webadmin.embedded.deployment.store_places import check_store_places
from webadmin.lanes.catalog.errors import AddressRefused, DirtyBranch, ImportRefused
from webadmin.lanes.catalog.models import ImportedPlace, Repository
from webadmin.lanes.catalog.object_places import address_of, object_at, physical_address_of
from webadmin.lanes.catalog.places import catalog_store, data_prefix_of
from webadmin.lanes.catalog.services.import_objects import ImportSource, check_sources, import_objects
from webadmin.lanes.catalog.services.read_objects import get_entry
from webadmin.lanes.catalog.services.repositories import delete_repository
from webadmin.lanes.tables.errors import TableRefused
from webadmin.lanes.tables.models import DataSource
from webadmin.lanes.tables.services.sources import NewTable, create_table
from webadmin.lanes.tsdb.models import Bucket
from webadmin.lanes.tsdb.services.buckets import BucketRefused, adopt_bucket


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
        import_objects(catalog.repository, "main", sources, SAID, context=CONTEXT)
    catalog.commit()
    commit = import_objects(catalog.repository, "main", sources, SAID, context=CONTEXT)
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
            import_objects(catalog.repository, "main", [ImportSource(url=url, destination="")], SAID, context=CONTEXT)
    two = [ImportSource(url=f"{folder}/data/a", destination="k", is_prefix=False)] * 2
    for sources in ([], two):
        with pytest.raises(ImportRefused):
            import_objects(catalog.repository, "main", sources, SAID, context=CONTEXT)
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
            import_objects(catalog.repository, "main", [source], SAID, context=CONTEXT)
    assert objects(catalog) == set()
    sources = [
        ImportSource(url=f"{folder}/data2/", destination="in/"),
        ImportSource(url=f"{folder}/other", destination="z", is_prefix=False),
    ]
    import_objects(catalog.repository, "main", sources, SAID, context=CONTEXT)
    assert objects(catalog) == {"in/c", "z"}


def test_a_single_object_replaces_its_own_key_only_and_names_are_kept(catalog: Catalog, folder: str) -> None:
    strange = "100%25 a?b#c"
    (Path(folder.removeprefix("file://")) / strange).write_bytes(b"x")
    catalog.put("k", "x")
    catalog.put("kept", "x")
    catalog.commit()
    told: list[int] = []
    source = ImportSource(url=f"{folder}/{quote(strange)}", destination="k", is_prefix=False)
    import_objects(catalog.repository, "main", [source], SAID, context=CONTEXT, progress=told.append)
    assert objects(catalog) == {"k", "kept"}
    assert told == [1]
    store, key = object_at(catalog.repository, ObjectEntry.from_payload(get_entry(catalog.repository, "main", b"k")[2]))
    assert (key, store.get(key)) == (strange, b"x")
    missing = ImportSource(url=f"{folder}/none", destination="k", is_prefix=False)
    with pytest.raises(ImportRefused, match="nothing lies"):
        import_objects(catalog.repository, "main", [missing], SAID, context=CONTEXT)


def test_an_import_can_be_stopped_on_its_way(catalog: Catalog, folder: str) -> None:
    def stop(taken: int) -> None:
        raise ZeroDivisionError

    source = ImportSource(url=f"{folder}/", destination="in/")
    with pytest.raises(ZeroDivisionError):
        import_objects(catalog.repository, "main", [source], SAID, context=CONTEXT, progress=stop)
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
    import_objects(catalog.repository, "main", [source], SAID, context=CONTEXT)
    assert objects(catalog) == {"in/a", "in/b"}
    for key in ("link", "linked/secret"):
        single = ImportSource(url=f"{folder}/data/{key}", destination="k", is_prefix=False)
        with pytest.raises(ImportRefused):
            import_objects(catalog.repository, "main", [single], SAID, context=CONTEXT)


def test_an_imported_object_that_became_a_link_is_not_read(catalog: Catalog, folder: str, tmp_path: Path) -> None:
    source = ImportSource(url=f"{folder}/data/", destination="in/")
    import_objects(catalog.repository, "main", [source], SAID, context=CONTEXT)
    imported = Path(folder.removeprefix("file://")) / "data" / "a"
    imported.unlink()
    (tmp_path / "secret").write_bytes(b"data/a")
    imported.symlink_to(tmp_path / "secret")
    entry = ObjectEntry.from_payload(get_entry(catalog.repository, "main", b"in/a").payload)
    store, key = object_at(catalog.repository, entry)
    with pytest.raises(ObjectNotFound, match="symbolic link"):
        store.get(key)


COMPACTED = "compaction deletes objects that it replaced"


def adopt(url: str) -> None:
    create_table(NewTable(tenant="acme", name="events", url=url, time_column="ts"), context=CONTEXT)


@pytest.mark.parametrize("place", ["data", "data/deeper", "", "data2"])
def test_no_table_and_no_bucket_is_adopted_where_objects_were_imported(
    catalog: Catalog, folder: str, place: str, settings: LazySettings
) -> None:
    """The catalog names the originals, which compaction would delete."""
    sources = [
        ImportSource(url=f"{folder}/data/", destination="in/"),
        ImportSource(url=f"{folder}/data2/c", destination="c", is_prefix=False),
    ]
    import_objects(catalog.repository, "main", sources, SAID, context=CONTEXT)
    url = f"{folder}/{place}".rstrip("/")
    Path(url.removeprefix("file://")).mkdir(exist_ok=True)
    imported = "data2/c" if place == "data2" else "data/"
    named = f"holds objects that the repository {catalog.repository} imported from {folder}/{imported}: {COMPACTED}"
    with pytest.raises(TableRefused, match=re.escape(named)):
        adopt(url)
    settings.TABLES_URL = f"{folder}-elsewhere"
    settings.STORE_ROOTS = [folder]
    with pytest.raises(BucketRefused, match=re.escape(named)):
        adopt_bucket(url=url, layout="thanos", name="metrics", context=CONTEXT)
    assert not DataSource.objects.exists()
    assert not Bucket.objects.exists()


def test_a_folder_beside_imported_objects_is_adopted(catalog: Catalog, folder: str) -> None:
    sources = [
        ImportSource(url=f"{folder}/data/", destination="in/"),
        ImportSource(url=f"{folder}/other", destination="c", is_prefix=False),
    ]
    import_objects(catalog.repository, "main", sources, SAID, context=CONTEXT)
    adopt(f"{folder}/data2")
    assert [source.url for source in DataSource.objects.all()] == [f"{folder}/data2"]


def test_a_prefix_that_is_no_folder_holds_all_folders_that_begin_with_it(catalog: Catalog, folder: str) -> None:
    source = ImportSource(url=f"{folder}/data", destination="in/")
    import_objects(catalog.repository, "main", [source], SAID, context=CONTEXT)
    for name in ("data", "data2", "data-of-tomorrow"):
        with pytest.raises(TableRefused, match=COMPACTED):
            adopt(f"{folder}/{name}")


def test_a_folder_is_free_again_after_the_import_failed_or_its_repository_is_gone(
    catalog: Catalog, folder: str
) -> None:
    def stop(taken: int) -> None:
        with pytest.raises(TableRefused, match=COMPACTED):
            adopt(f"{folder}/data")
        raise ZeroDivisionError

    source = ImportSource(url=f"{folder}/data/", destination="in/")
    with pytest.raises(ZeroDivisionError):
        import_objects(catalog.repository, "main", [source], SAID, context=CONTEXT, progress=stop)
    adopt(f"{folder}/data")
    DataSource.objects.all().delete()
    import_objects(catalog.repository, "main", [source], SAID, context=CONTEXT)
    delete_repository(catalog.repository, context=CONTEXT)
    with pytest.raises(TableRefused, match=COMPACTED):
        adopt(f"{folder}/data")
    Repository.objects.all().delete()
    adopt(f"{folder}/data")


def test_a_table_that_is_adopted_while_an_import_begins_is_seen(
    catalog: Catalog, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is adopted after the first check of the sources, and before the place of the import is recorded."""

    def checked(repository: Repository, sources: Sequence[ImportSource]) -> list[str]:
        keys = check_sources(repository, sources)
        adopt(f"{folder}/data")
        return keys

    monkeypatch.setattr("webadmin.lanes.catalog.services.import_objects.check_sources", checked)
    source = ImportSource(url=f"{folder}/data/", destination="in/")
    with pytest.raises(ImportRefused, match="the place of table acme/events"):
        import_objects(catalog.repository, "main", [source], SAID, context=CONTEXT)
    assert not ImportedPlace.objects.exists()


def test_repeated_imports_are_recorded_once(catalog: Catalog, folder: str) -> None:
    single = ImportSource(url=f"{folder}/data/a", destination="k", is_prefix=False)
    import_objects(catalog.repository, "main", [single], SAID, context=CONTEXT)
    again = ImportSource(url=f"{folder}/data/a", destination="other", is_prefix=False)
    import_objects(catalog.repository, "main", [again], SAID, context=CONTEXT)
    assert [place.key for place in ImportedPlace.objects.all()] == ["data/a"]
    prefix = ImportSource(url=f"{folder}/data/", destination="in/")
    import_objects(catalog.repository, "main", [prefix], SAID, context=CONTEXT)
    other = ImportSource(url=f"{folder}/other", destination="z", is_prefix=False)
    import_objects(catalog.repository, "main", [other], SAID, context=CONTEXT)
    assert [(place.key, place.is_prefix) for place in ImportedPlace.objects.all()] == [
        ("data/", True),
        ("other", False),
    ]


def test_the_check_of_the_deployment_names_tables_that_hold_imported_objects(catalog: Catalog, folder: str) -> None:
    source = ImportSource(url=f"{folder}/data/", destination="in/")
    import_objects(catalog.repository, "main", [source], SAID, context=CONTEXT)
    DataSource.objects.create(tenant="acme", name="beside", url=f"{folder}/data2", time_column="ts")
    assert not [found for found in check_store_places() if "imported" in found.found]
    DataSource.objects.create(tenant="acme", name="events", url=f"{folder}/data", time_column="ts")
    [found] = [found for found in check_store_places() if found.level is Level.ERROR]
    named = f"table acme/events ({folder}/data) holds objects that the repository {catalog.repository} imported"
    assert found.found.startswith(named)
