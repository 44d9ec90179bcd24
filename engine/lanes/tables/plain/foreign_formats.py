"""Detect folders and files of Delta Lake, Apache Iceberg and Apache Hudi tables.

Such a table lists its files in its own metadata: some of them are logically deleted, and readers fail once a file was
merged into another one and deleted. Only plain Parquet is compacted. The marks of each format are listed in
``docs/how-to/adopt-a-table.md``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from urllib.parse import unquote, urlsplit

from engine.core.errors import LithifyError
from engine.formats.parquet.errors import ForeignFile
from engine.formats.parquet.footers import SECTION, Footer
from engine.storage import ObjectNotFound, ObjectStore, StorageError, cached_store, is_local, open_store

REQUESTS_AT_ONCE = 8
METADATA_KEYS_MAX = 10_000
"""Objects of a folder ``metadata/`` that are searched for Iceberg metadata. Of a larger folder those whose names begin
with ``v`` are searched too, as tables without a catalog have them; else the folder counts as unchecked."""
DELTA_LOG, HUDI_FOLDER, ICEBERG_FOLDER = "_delta_log/", ".hoodie/", "metadata/"
HUDI_PARTITION = ".hoodie_partition_metadata"
ICEBERG_HINT = "version-hint.text"
ICEBERG_VERSION = "v"
ICEBERG_METADATA = (".metadata.json", ".metadata.json.gz")
ICEBERG_FOOTER_KEY = b"iceberg.schema"
HUDI_FOOTER_KEYS = (b"hoodie_", b"org.apache.hudi.")
HUDI_COLUMNS = "_hoodie_"


class TableFormat(enum.StrEnum):
    """A table format whose files are not compacted."""

    DELTA = "Delta Lake"
    HUDI = "Apache Hudi"
    ICEBERG = "Apache Iceberg"


MAINTENANCE = {
    TableFormat.DELTA: "OPTIMIZE",
    TableFormat.HUDI: "Hudi's own compaction and clustering",
    TableFormat.ICEBERG: "the procedure rewrite_data_files",
}
"""How tables of a format are compacted with their own tools."""


class ForeignTable(LithifyError):
    """A folder is, contains or lies in a table of another format; nothing was changed.

    ``root`` is that table's URL, ``sign`` its mark.
    """

    code = "foreign_table"

    def __init__(self, place: str, format_name: str, root: str, sign: str) -> None:
        super().__init__(place, format_name, root, sign)
        self.place, self.format, self.root, self.sign = place, TableFormat(format_name), root, sign

    def __str__(self) -> str:
        return (
            f"{self.place}: there is a {self.format} table at {self.root} (it has {self.sign}). Only plain Parquet "
            "is compacted: merging that table's files would restore deleted rows and remove files its readers need. "
            f"Use a folder that neither is nor contains nor lies in {self.root}; compact that table with "
            f"{MAINTENANCE[self.format]}"
        )


@dataclass(frozen=True, slots=True)
class UncheckedFolder:
    """A folder that could not be listed: it is unknown whether it is a table of another format."""

    url: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.url} could not be checked for a table of Delta Lake, Apache Iceberg or Apache Hudi: {self.reason}. "
            "Make sure that it is not one, or allow listing it"
        )


class FolderUnchecked(LithifyError):
    """A folder of the table's own files could not be checked for a table of another format. Nothing was changed.

    The text names it as it is below the table's URL: tenants read it.
    """

    code = "folder_unchecked"

    def __init__(self, folder: str, reason: str) -> None:
        super().__init__(folder, reason)
        self.folder, self.reason = folder, reason

    def __str__(self) -> str:
        place = f"the folder {self.folder} of the table" if self.folder else "the table's folder"
        return f"{place} could not be checked for a table of Delta Lake, Apache Iceberg or Apache Hudi: {self.reason}"


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder to check: ``prefix`` in ``store``, empty or ending in a slash."""

    store: ObjectStore
    prefix: str
    url: str


def check_place(store: ObjectStore, paths: Iterable[str] = ()) -> tuple[UncheckedFolder, ...]:
    """Check the store's folder, its parents up to the bucket or file system, and the folders of ``paths`` in it.

    Return the parents that could not be listed. Raises ForeignTable, and FolderUnchecked if the store's own folder or
    one in it could not be listed. Four requests per folder.
    """
    inner = {folder for path in paths for folder in _folders_of(path)}
    parents = list(_parents(store))
    folders = [*parents, *(_Folder(store, folder, _url_of(store, folder)) for folder in ["", *sorted(inner)])]
    with ThreadPoolExecutor(min(REQUESTS_AT_ONCE, len(folders)), thread_name_prefix="table-formats") as pool:
        found = list(pool.map(partial(_checked, _url_of(store)), folders))
    for folder, own in list(zip(folders, found, strict=True))[len(parents) :]:
        if own is not None:
            raise FolderUnchecked(folder.prefix, own.reason)
    return tuple(one for one in found if one is not None)


def check_contents(store: ObjectStore) -> None:
    """List all objects of a store. Raises ForeignTable if it contains a table of another format, StorageError."""
    for info in store.list():
        found = _format_of_key(info.key)
        if found is not None:
            kind, root, sign = found
            raise ForeignTable(_url_of(store), kind, _url_of(store, root), sign)


def check_footer(footer: Footer) -> None:
    """Raise ForeignFile if a file's footer shows that Iceberg or Hudi wrote it. Delta Lake leaves no mark there."""
    if ICEBERG_FOOTER_KEY in footer.key_values:
        raise _foreign_file(footer, TableFormat.ICEBERG, "the key iceberg.schema")
    columns = [name for name in footer.schema.names if name.startswith(HUDI_COLUMNS)]
    keys = [key.decode(errors="replace") for key in footer.key_values if key.startswith(HUDI_FOOTER_KEYS)]
    if columns or keys:
        raise _foreign_file(footer, TableFormat.HUDI, f"the column {columns[0]}" if columns else f"the key {keys[0]}")


def _foreign_file(footer: Footer, kind: TableFormat, sign: str) -> ForeignFile:
    reason = (
        f"a file of {kind}: its footer has {sign}. Only plain Parquet is compacted; leave this file to its table, and "
        f"compact that table with {MAINTENANCE[kind]}"
    )
    return ForeignFile(SECTION, footer.start, reason, footer.path)


def _url_of(store: ObjectStore, folder: str = "") -> str:
    """Return the URL of a folder in a store, without the query parameters of the store."""
    return f"{urlsplit(store.url)._replace(query='').geturl().rstrip('/')}/{folder}".rstrip("/")


def _parents(store: ObjectStore) -> Iterator[_Folder]:
    """Yield the parent folders of a store, the topmost last; those of a bucket share one connection."""
    if is_local(store.url):
        root = Path(unquote(urlsplit(store.url).path))
        for folder in root.parents:  # A store's path contains no symbolic links.
            yield _Folder(open_store(folder.as_uri()), "", folder.as_uri())
        return
    parts = urlsplit(store.url)
    if parts.scheme != "s3":
        return
    bucket = cached_store(parts._replace(path="").geturl())
    names = unquote(parts.path).strip("/").split("/")
    for depth in reversed(range(len(names) if names != [""] else 0)):
        prefix = "".join(f"{name}/" for name in names[:depth])
        yield _Folder(bucket, prefix, _url_of(bucket, prefix))


def _folders_of(path: str) -> list[str]:
    """Return the folders of a path, each with its trailing slash."""
    names = path.split("/")[:-1]
    return ["/".join(names[: depth + 1]) + "/" for depth in range(len(names))]


def _checked(place: str, folder: _Folder) -> UncheckedFolder | None:
    """Raise ForeignTable if a folder is the root of a foreign table; return the folder if it could not be checked."""
    try:
        for kind, sign in SIGNS:
            if found := sign(folder):
                raise ForeignTable(place, kind, folder.url, found)
    except StorageError as error:
        return UncheckedFolder(folder.url, str(error))
    return None


def _delta_sign(folder: _Folder) -> str:
    if any(True for _ in folder.store.list(folder.prefix + DELTA_LOG)):
        return DELTA_LOG
    # An empty log folder belongs to a table being created or deleted; buckets have no empty folders.
    return DELTA_LOG if _has_folder(folder, DELTA_LOG) else ""


def _hudi_sign(folder: _Folder) -> str:
    if any(True for _ in folder.store.list(folder.prefix + HUDI_FOLDER)) or _has_folder(folder, HUDI_FOLDER):
        return HUDI_FOLDER
    with suppress(ObjectNotFound):
        folder.store.head(folder.prefix + HUDI_PARTITION)
        return HUDI_PARTITION
    return ""


def _iceberg_sign(folder: _Folder) -> str:
    is_whole, sign = _iceberg_metadata(folder, ICEBERG_FOLDER)
    if is_whole or sign:
        return sign
    with suppress(ObjectNotFound):
        folder.store.head(folder.prefix + ICEBERG_FOLDER + ICEBERG_HINT)
        return ICEBERG_FOLDER + ICEBERG_HINT
    _, sign = _iceberg_metadata(folder, ICEBERG_FOLDER + ICEBERG_VERSION)
    if sign:
        return sign
    raise StorageError("list", folder.prefix + ICEBERG_FOLDER, f"it has more than {METADATA_KEYS_MAX} objects")


def _iceberg_metadata(folder: _Folder, prefix: str) -> tuple[bool, str]:
    """Return whether all keys with a prefix were read, up to METADATA_KEYS_MAX, and the first that is Iceberg's."""
    keys = iter(folder.store.list(folder.prefix + prefix))
    for info in islice(keys, METADATA_KEYS_MAX):
        name = info.key.removeprefix(folder.prefix)
        if _is_iceberg_metadata(name):
            return False, name
    return next(keys, None) is None, ""


SIGNS: tuple[tuple[TableFormat, Callable[[_Folder], str]], ...] = (
    (TableFormat.DELTA, _delta_sign),
    (TableFormat.HUDI, _hudi_sign),
    (TableFormat.ICEBERG, _iceberg_sign),
)
"""Detectors of table roots. For tables with metadata of several formats, the first is that of the writer."""


def _has_folder(folder: _Folder, name: str) -> bool:
    return is_local(folder.store.url) and folder.prefix + name in folder.store.list_folders(folder.prefix)


def _is_iceberg_metadata(name: str) -> bool:
    """Return whether ``metadata/…`` is a file that describes an Iceberg table."""
    file = name.removeprefix(ICEBERG_FOLDER)
    return file != name and "/" not in file and (file == ICEBERG_HINT or file.endswith(ICEBERG_METADATA))


def _format_of_key(key: str) -> tuple[TableFormat, str, str] | None:
    """Return the format that an object's key indicates, the root of its table in the store, and the mark."""
    folders = _folders_of(key)
    for above, folder in zip(("", *folders), folders, strict=False):
        name = folder.removeprefix(above)
        if name == DELTA_LOG:
            return TableFormat.DELTA, above, DELTA_LOG
        if name == HUDI_FOLDER:
            return TableFormat.HUDI, above, HUDI_FOLDER
    folder = folders[-1] if folders else ""
    if key.removeprefix(folder).startswith(HUDI_PARTITION):
        return TableFormat.HUDI, folder, HUDI_PARTITION
    if folder and (folder == ICEBERG_FOLDER or folder.endswith("/" + ICEBERG_FOLDER)):
        root = folder.removesuffix(ICEBERG_FOLDER)
        if _is_iceberg_metadata(name := key.removeprefix(root)):
            return TableFormat.ICEBERG, root, name
    return None
