"""What callers send who do not know the rules, or want to break them: precise answers, and nothing else happens."""

from __future__ import annotations

import base64
import re
import unicodedata
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.conf import LazySettings
from django.test import Client

from tests.webadmin.hostile.conftest import refusals
from tests.webadmin.lanes.catalog.api.conftest import ROOT, Caller
from webadmin.base.access.credential_changes import revoke_credential
from webadmin.base.access.services import issue_worker_credential
from webadmin.base.actions.action import ActionContext
from webadmin.base.database import dialect
from webadmin.lanes.catalog.api.operation_view import Operation
from webadmin.lanes.catalog.api.operations import OPERATIONS
from webadmin.lanes.catalog.models import Branch, Commit, Repository, StagedEntry
from webadmin.lanes.catalog.services.branches import find_branch
from webadmin.lanes.catalog.services.commits import NewCommit
from webadmin.lanes.catalog.services.import_objects import ImportSource, import_objects
from webadmin.lanes.catalog.services.repositories import find_repository

OBJECTS = "repositories/books/refs/main/objects"
LISTING = f"{OBJECTS}/ls"
BRANCH = "repositories/books/branches/main"
KEYED = [operation for operation in OPERATIONS if not operation.is_open]


def address(operation: Operation) -> str:
    """The address of an operation on what is there, or on what is not."""
    names = {"repository": "books", "branch": "main", "ref": "main", "left": "main", "right": "main", "commit": "main"}
    return re.sub(r"\{(\w+)\}", lambda name: names.get(name[1], "nothing"), operation.path)


def rows() -> tuple[int, ...]:
    """How much there is of everything."""
    return tuple(model.objects.count() for model in (Repository, Branch, Commit, StagedEntry))


def keys(caller: Caller, **query: str) -> list[str]:
    asked = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
    return [found["path"] for found in caller.get(f"{LISTING}?{asked}").json()["results"]]


def test_every_operation_needs_a_permitted_key(caller: Caller) -> None:
    reader, stranger = Caller("reader", may_write=False), Caller("stranger", tenant="other")
    before = rows()
    for operation in KEYED:
        for authorization in ("", "Bearer lw_000000000000_x", "Basic !!!", "Basic /zp4"):
            caller.authorization = authorization
            answer = caller.send(operation.method, address(operation), {})
            assert (operation.name, answer.status_code) == (operation.name, 401)
            assert answer.headers["WWW-Authenticate"].startswith("Basic")
        if operation.writes:
            told = reader.send(operation.method, address(operation), {}).status_code
            assert (operation.name, told) == (operation.name, 403)
        if "{repository}" in operation.path:
            told = stranger.send(operation.method, address(operation) + "?path=a&dest_path=b", {}).status_code
            assert (operation.name, told) == (operation.name, 404), "another tenant's repository is not there"
    assert rows() == before
    assert refusals("credential:reader") == {"request.scope_missing": sum(each.writes for each in KEYED)}


def test_a_key_that_was_revoked_or_is_no_access_key_is_refused(caller: Caller) -> None:
    everybody = issue_worker_credential(name="everybody", scopes=["catalog:read", "tenant:*"], actor="t").wire_form
    worker = issue_worker_credential(name="worker", scopes=["jobs:poll", "tenant:acme"], actor="t").wire_form
    for wire_form, words in ((everybody, "exactly one tenant"), (worker, "catalog:read")):
        key_id, _, secret = (
            wire_form.rpartition("_") if wire_form.count("_") == 2 else (wire_form[:15], "", wire_form[16:])
        )
        caller.authorization = "Basic " + base64.b64encode(f"{key_id}:{secret}".encode()).decode()
        status, message = caller.told("GET", "repositories")
        assert (status, words in message) == (403, True)
    ann = Caller("other")
    revoke_credential(name="other", actor="t")
    assert ann.told("GET", "repositories") == (401, "unknown or revoked worker credential")


STRANGE = {
    "..": "..",
    "up": "../../etc/passwd",
    "slashes": "//a///b/",
    "controls": "a\r\nb\t\x01\x7f",
    "reserved": "a?b#c%2F&d=e+f",
    "spaces": "  ",
    "emoji": "\U0001f5c3\ufe0f/\u202eabc",
    "nfd": unicodedata.normalize("NFD", "é"),
    "nfc": "é",
    "backslash": "a\\b",
    "long": "é" * 512,
}


@pytest.mark.parametrize("key", STRANGE.values(), ids=STRANGE.keys())
def test_strange_keys_are_kept_as_they_are(caller: Caller, key: str, tmp_path: Path) -> None:
    sent = quote(key, safe="")
    made = caller.put(sent, b"bytes")
    assert (made.status_code, made.json()["path"]) == (201, key)
    assert caller.get(f"{OBJECTS}/stat?path={sent}").json()["path"] == key
    assert b"".join(caller.get(f"{OBJECTS}?path={sent}").streaming_content) == b"bytes"
    assert keys(caller) == keys(caller, prefix=key) == [key]
    assert keys(caller, after=key) == []
    assert caller.send("POST", f"{BRANCH}/commits", {"message": key}).status_code == 201
    assert caller.send("DELETE", f"{BRANCH}/objects?path={sent}").status_code == 204
    diff = caller.get(f"{BRANCH}/diff").json()["results"]
    assert [(each["type"], each["path"]) for each in diff] == [("removed", key)]
    outside = [path for path in tmp_path.rglob("*") if path.is_file() and "objects" not in path.parts]
    assert outside == []


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ("", "empty"),
        ("a%00b", "NUL"),
        ("%FF", "not UTF-8"),
        ("%ED%A0%80", "not UTF-8"),
        ("a" * 1025, "1025 bytes"),
        (quote("é" * 513), "1026 bytes"),
    ],
    ids=["empty", "nul", "no-utf8", "surrogate", "long", "long-in-bytes"],
)
def test_keys_that_cannot_be_are_refused_wherever_they_are_named(caller: Caller, sent: str, words: str) -> None:
    before = rows()
    calls: list[tuple[str, str, Any]] = [
        ("POST", f"{BRANCH}/objects?path={sent}", b"x"),
        ("DELETE", f"{BRANCH}/objects?path={sent}", None),
        ("POST", f"{BRANCH}/objects/copy?dest_path={sent}", {"src_path": "a"}),
        ("GET", f"{BRANCH}/staging/backing?path={sent}", None),
        ("PUT", f"{BRANCH}/staging/backing?path={sent}", {}),
        ("GET", f"{OBJECTS}?path={sent}", None),
        ("GET", f"{OBJECTS}/stat?path={sent}", None),
        ("HEAD", f"{OBJECTS}?path={sent}", None),
    ]
    for method, path, body in calls:
        answer = caller.send(method, path, body)
        assert answer.status_code == 400, (method, path)
        assert method == "HEAD" or words in answer.json()["message"]
    assert rows() == before
    assert set(refusals("credential:ann")) <= {"request.invalid_entry_key", "request.request_refused"}


def test_many_keys_are_deleted_but_those_that_cannot_be(caller: Caller) -> None:
    for key in ("a", "b", "c"):
        caller.put(key, b"x")
    told = caller.send("POST", f"{BRANCH}/objects/delete", {"paths": ["a", "", "x" * 2000, "b", "none"]}).json()
    assert [(each["status_code"], each["path"][:3]) for each in told["errors"]] == [(400, ""), (400, "xxx")]
    assert keys(caller) == ["c"]
    for body in ({"paths": ["c"] * 1001}, {"paths": "c"}, {"paths": [1]}, {}, []):
        assert caller.told("POST", f"{BRANCH}/objects/delete", body)[0] == 400
    assert keys(caller) == ["c"]


WRONG_REFS = {
    "nothing": 404,
    "main~1": 404,
    "main^2": 404,
    "main~999999999": 400,
    "0" * 64: 404,
    "%00": 400,
    "main%0A": 400,
    "~": 400,
    "@": 400,
    "a%2Fb": 404,
    "%C3%A9": 404,
    "x" * 500: 400,
    "%FF": 404,
}


def test_wrong_references_are_rejected_by_every_endpoint(caller: Caller) -> None:
    for ref, status in WRONG_REFS.items():
        for path in (
            f"refs/{ref}/objects/ls",
            f"refs/{ref}/objects/stat?path=a",
            f"refs/{ref}/objects?path=a",
            f"refs/{ref}/commits",
            f"commits/{ref}",
            f"refs/{ref}/diff/main",
            f"refs/main/diff/{ref}",
        ):
            answer = caller.told("GET", f"repositories/books/{path}")
            assert answer[0] == status, (path, answer)
        assert caller.told("POST", f"repositories/books/refs/{ref}/merge/main", {})[0] == status


def test_names_that_cannot_be_are_refused(caller: Caller) -> None:
    for name in ("B", "ab", "-ab", "a" * 64, "a/b", "a.b", "é", "ab\0", 7, None):
        assert caller.told("POST", "repositories", {"name": name, "storage_namespace": "local://x"})[0] == 400, name
    for namespace in ("", "a\nb", "x" * 2000):
        assert caller.told("POST", "repositories", {"name": "other", "storage_namespace": namespace})[0] == 400
    for name in ("", "a/b", "..", "a b", "é", "x" * 300, "0" * 64, "~", "main~1"):
        assert caller.told("POST", "repositories/books/branches", {"name": name, "source": "main"})[0] == 400, name
    for name in ("", "a//b", "a..b", "a b", "x" * 300, "0" * 64, "v1.lock"):
        assert caller.told("POST", "repositories/books/tags", {"id": name, "ref": "main"})[0] == 400, name
    assert caller.told("POST", "repositories/books/branches", {"name": "new", "source": "none"})[0] == 404
    assert caller.told("POST", "repositories", {"name": "others", "storage_namespace": "local://books"})[0] == 409
    assert caller.told("DELETE", "repositories/books/branches/main")[0] == 400, "the default branch stays"


def test_conditions_hold_for_what_is_there(caller: Caller) -> None:
    first = caller.put("a", b"one").json()["checksum"]
    assert caller.put("a", b"two", If_None_Match="*").status_code == 412
    assert caller.put("b", b"two", If_Match=f'"{first}"').status_code == 412
    assert caller.put("a", b"two", If_Match=f'"{first}"').status_code == 201
    assert caller.put("a", b"three", If_Match=first).status_code == 412
    caller.send("DELETE", f"{BRANCH}/objects?path=a")
    assert caller.put("a", b"four", If_None_Match="*").status_code == 201
    for headers in (
        {"If_None_Match": first},
        {"If_Match": "*"},
        {"If_Match": "a,b"},
        {"If_Match": first, "If_None_Match": "*"},
    ):
        assert caller.put("a", b"five", **headers).status_code == 400
    body = b"".join(caller.get(f"{OBJECTS}?path=a").streaming_content)
    assert body == b"four"


def test_ranges(caller: Caller) -> None:
    etag = caller.put("a", b"0123456789").json()["checksum"]
    for told, status, expected in [
        ("bytes=0-0", 206, b"0"),
        ("bytes=2-4", 206, b"234"),
        ("bytes=7-", 206, b"789"),
        ("bytes=-3", 206, b"789"),
        ("bytes=-99", 206, b"0123456789"),
        ("bytes=5-99", 206, b"56789"),
        ("bytes=5-2", 200, b"0123456789"),
        ("bytes=0-1,4-5", 200, b"0123456789"),
        ("lines=1-2", 200, b"0123456789"),
        ("bytes=-", 200, b"0123456789"),
    ]:
        answer = caller.get(f"{OBJECTS}?path=a", Range=told)
        assert (answer.status_code, b"".join(answer.streaming_content)) == (status, expected), told
        assert answer.headers["Content-Length"] == str(len(expected))
    for told in ("bytes=10-", "bytes=99-100", "bytes=-0"):
        answer = caller.get(f"{OBJECTS}?path=a", Range=told)
        assert (answer.status_code, answer.headers["Content-Range"]) == (416, "bytes */10")
    assert caller.get(f"{OBJECTS}?path=a", If_None_Match=f'"{etag}"').status_code == 304
    whole = caller.get(f"{OBJECTS}?path=a")
    assert whole.headers["Content-Security-Policy"] == "sandbox", "nobody's upload is a page of ours"
    assert whole.headers["Content-Disposition"] == "attachment"


def stored_file(tmp_path: Path) -> Path:
    [found] = [path for path in (tmp_path / "objects").rglob("*") if path.is_file() and "data" in path.parts]
    return found


def test_bytes_that_are_gone_are_gone_and_nothing_else(caller: Caller, tmp_path: Path) -> None:
    caller.put("a", b"0123456789")
    file = stored_file(tmp_path)
    file.write_bytes(b"0123")
    status, message = caller.told("GET", f"{OBJECTS}?path=a")
    assert (status, "damaged" in message, file.name in message) == (410, True, True)
    file.unlink()
    status, message = caller.told("GET", f"{OBJECTS}?path=a")
    assert (status, "gone" in message, file.name in message) == (410, True, True)
    assert caller.get(f"{OBJECTS}/stat?path=a").json()["size_bytes"] == 10
    assert keys(caller) == ["a"]


def test_no_answer_names_a_path_of_the_server(caller: Caller, tmp_path: Path) -> None:
    """But for the address of an object, where programs with credentials of the store read and write."""
    caller.put("a", b"0123456789")
    caller.send("POST", f"{BRANCH}/commits", {"message": "m"})
    stored = stored_file(tmp_path)
    imported = tmp_path / "tables/acme/imported"
    imported.parent.mkdir(parents=True)
    imported.write_bytes(b"1")
    source = ImportSource(url=imported.as_uri(), destination="b", is_prefix=False)
    context = ActionContext(actor="test", why="a test")
    import_objects(
        find_repository("acme", "books"), "main", [source], NewCommit(message="m", committer="ann"), context=context
    )
    stored.unlink()
    imported.unlink()
    told = [caller.told("GET", f"{OBJECTS}?path={path}")[1] for path in ("a", "b")]
    assert told == [
        f"the bytes of a are gone: nothing lies at data/{stored.name}",
        "the bytes of b are gone: nothing lies at its place in acme/ of TABLES_URL",
    ]
    body: Any = {"paths": [{"type": "object", "path": "file:///etc/passwd", "destination": "c"}], "commit": {}}
    told += [
        caller.send(operation.method, f"{address(operation)}?path={path}", sent).content.decode()
        for operation in OPERATIONS
        if operation.method != "DELETE" and operation.name != "get_object"
        for path in ("a", "b", "missing")
        for sent in (None, {"x": 1}, body)
    ]
    addresses = re.compile(r'"physical_address": "[^"]*"')
    assert any(addresses.search(text) for text in told)
    assert not [text for text in told if str(tmp_path) in addresses.sub("", text)]


def test_a_damaged_range_names_itself_and_only_what_needs_it_fails(caller: Caller, tmp_path: Path) -> None:
    caller.put("a", b"x")
    caller.send("POST", f"{BRANCH}/commits", {"message": "m"})
    [file] = [path for path in (tmp_path / "objects").rglob("*") if "ranges" in path.parts and path.is_file()]
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 0xFF
    file.write_bytes(data)
    status, message = caller.told("GET", LISTING)
    assert (status, file.name in message) == (500, True)
    assert caller.get("repositories/books/refs/main/commits").status_code == 200
    assert caller.get("repositories/books/branches").status_code == 200
    caller.put("b", b"y")
    assert caller.get(f"{OBJECTS}/stat?path=b").status_code == 200


def test_a_refused_upload_leaves_no_bytes(caller: Caller, settings: LazySettings, tmp_path: Path) -> None:
    def files() -> int:
        return sum(1 for path in (tmp_path / "objects").rglob("*") if path.is_file())

    before = files()
    settings.CATALOG_OBJECT_BYTES = 10
    status, message = caller.told("POST", f"{BRANCH}/objects?path=a", b"0123456789x")
    assert (status, "10 bytes" in message) == (413, True)
    assert caller.put("a", b"x", branch="none").status_code == 404
    form = {"Content_Type": "multipart/form-data; boundary=b"}
    part = b'--b\r\nContent-Disposition: form-data; name="%s"; filename="f"\r\n\r\n%s\r\n'
    for body, words in [
        (part % (b"content", b"y" * 11) + b"--b--\r\n", "10 bytes"),
        (part % (b"other", b"y") + b"--b--\r\n", "named content"),
        (part % (b"content", b"y") * 2 + b"--b--\r\n", "one file"),
        (b"--b--\r\n", "no file"),
        (b'--b\r\nContent-Disposition: form-data; name="content"\r\n\r\ny\r\n--b--\r\n', "no file"),
    ]:
        answer = caller.put("a", body, **form)
        assert answer.status_code in (400, 413), body
        assert words in answer.json()["message"]
    assert caller.put("a", b"x", Content_Type="multipart/form-data").status_code == 400, "without a boundary"
    assert caller.put("a", b"x", Content_Type="a" * 300).status_code == 400
    assert caller.put("a", b"x", X_Lakefs_Meta_Long="v" * 3000).status_code == 400
    assert files() == before
    assert keys(caller) == []


def test_a_link_is_only_to_what_was_given_out_for_the_repository(caller: Caller, tmp_path: Path) -> None:
    assert (
        caller.send("POST", "repositories", {"name": "other", "storage_namespace": "local://other"}).status_code == 201
    )
    caller.put("mine", b"mine")
    foreign = "repositories/other/branches/main/staging/backing?path=a"
    given = caller.get(f"{BRANCH}/staging/backing?path=a").json()["physical_address"]
    place = Path(given.removeprefix("file://"))
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(b"12345")

    def link(url: str, path: str = f"{BRANCH}/staging/backing?path=a", size: int = 5) -> tuple[int, str]:
        body = {"staging": {"physical_address": url}, "checksum": "c", "size_bytes": size}
        answer = caller.send("PUT", path, body)
        return answer.status_code, answer.json().get("message", "")

    repository = find_repository("acme", "books")
    old = f"{dialect.clock_ms() - 25 * 3_600_000:013d}-{'0' * 20}"
    ranges = f"{given.rpartition('/data/')[0]}/meta/ranges/x"
    for url, path, size, words in [
        (given, foreign, 5, "are in"),
        (given, f"{BRANCH}/staging/backing?path=a", 4, "has 5 bytes, not 4"),
        (given[:-1] + "x", f"{BRANCH}/staging/backing?path=a", 5, "not given out"),
        (f"{given.rpartition('/')[0]}/{old}", f"{BRANCH}/staging/backing?path=a", 5, "24 hours"),
        (given + "/../../x", f"{BRANCH}/staging/backing?path=a", 5, "'..' part"),
        (ranges, f"{BRANCH}/staging/backing?path=a", 5, "are in"),
        ("file:///etc/passwd", f"{BRANCH}/staging/backing?path=a", 5, "are in"),
        ("http://169.254.169.254/", f"{BRANCH}/staging/backing?path=a", 5, "are in"),
        ("", f"{BRANCH}/staging/backing?path=a", 5, "empty"),
    ]:
        status, message = link(url, path, size)
        assert (status, words in message) == (400, True), (url, message)
    assert find_branch(repository, "main")
    assert keys(caller) == ["mine"]
    assert link(given)[0] == 200
    assert link(given)[0] == 200, "again changes nothing"
    assert b"".join(caller.get(f"{OBJECTS}?path=a").streaming_content) == b"12345"


@pytest.mark.parametrize("body", [b"{", b"[" * 100_000, b"\xff", b'{"message": NaN}', b'"text"', b"[]", b"null"])
def test_bodies_that_are_no_document_are_refused(caller: Caller, body: bytes) -> None:
    before = rows()
    for path in (
        f"{BRANCH}/commits",
        "repositories",
        f"{BRANCH}/revert",
        f"{BRANCH}/import",
        f"{BRANCH}/objects/copy?dest_path=a",
    ):
        status, message = caller.told("POST", path, body, Content_Type="application/json")
        assert (status, bool(message)) == (400, True)
    assert rows() == before


def test_wrong_fields_are_named(caller: Caller) -> None:
    caller.put("a", b"x")
    for method, path, body, words in [
        ("POST", f"{BRANCH}/commits", {"message": "a\0b"}, "$.message"),
        ("POST", f"{BRANCH}/commits", {"message": 1}, "$.message"),
        ("POST", f"{BRANCH}/commits", {"message": "m", "metadata": {"a": 1}}, "$.metadata.a"),
        ("POST", f"{BRANCH}/commits", {"message": "m", "metadata": {str(n): "" for n in range(101)}}, "$.metadata"),
        ("POST", f"{BRANCH}/commits", {"message": "m", "date": -1}, "$.date"),
        ("POST", f"{BRANCH}/commits", {"message": "m", "allow_empty": "yes"}, "$.allow_empty"),
        ("PUT", BRANCH, {"type": "everything"}, "$.type"),
        ("POST", "repositories/books/refs/main/merge/main", {"strategy": "mine"}, "$.strategy"),
        ("POST", f"{BRANCH}/revert", {"ref": "main", "parent_number": -1}, "$.parent_number"),
        ("POST", f"{BRANCH}/import", {"paths": [], "commit": {"message": ""}}, "$.paths"),
        ("POST", f"{BRANCH}/import", {"paths": [{"type": "x"}], "commit": {"message": ""}}, "$.paths[0].type"),
        ("PUT", "repositories/books/settings/branch_protection", [{"pattern": 1}], "pattern"),
    ]:
        status, message = caller.told(method, path, body)
        assert (status, words in message) == (400, True), message
    for query, words in [
        ("amount=1001", "amount"),
        ("amount=x", "amount"),
        ("amount=-2", "amount"),
        ("prefix=%00", "prefix"),
        ("after=" + "a" * 2000, "after"),
        ("presign=maybe", "presign"),
        ("&".join("a=b" for _ in range(60)), "fields"),
    ]:
        status, message = caller.told("GET", f"{LISTING}?{query}")
        assert (status in (400, 405), words in message) == (True, True), message
    assert caller.told("GET", "repositories/books/refs/main/diff/main?type=four_dot")[0] == 400
    assert caller.told("GET", "repositories/books/refs/main/commits?since=yesterday")[0] == 400


def test_a_read_only_repository_takes_nothing(caller: Caller) -> None:
    made = {"name": "fixed", "storage_namespace": "local://fixed", "read_only": True}
    assert caller.send("POST", "repositories", made).json()["read_only"] is True
    about_it = {"create_repository", "delete_repository", "set_branch_protection_rules"}
    before = rows()
    for operation in KEYED:
        if not operation.writes or operation.name in about_it:
            continue
        path = address(operation).replace("books", "fixed") + "?path=a&dest_path=b&id=x"
        body = {
            "message": "m",
            "paths": ["a"]
            if operation.name == "delete_objects"
            else [{"type": "object", "path": "x", "destination": "x"}],
            "commit": {"message": "m"},
            "name": "new",
            "id": "new",
            "source": "main",
            "ref": "main",
            "type": "reset",
            "src_path": "a",
            "set": {},
        }
        answer = caller.send(operation.method, path, body)
        assert answer.status_code in (403, 404), (operation.name, answer.content)
    assert rows() == before
    for query, status in (("", 403), ("?force=false", 403), ("?force=true", 204), ("?force=true", 404)):
        assert caller.send("DELETE", f"repositories/fixed{query}").status_code == status


def test_an_existing_tag_stays_where_it_is(caller: Caller) -> None:
    tags = "repositories/books/tags"
    first = caller.send("POST", tags, {"id": "v1", "ref": "main"})
    assert first.status_code == 201
    caller.put("k", b"1")
    assert caller.send("POST", f"{BRANCH}/commits", {"message": "m"}).status_code == 201
    for force in ({}, {"force": False}, {"force": True}):
        assert caller.told("POST", tags, {"id": "v1", "ref": "main"} | force)[0] == 409
    assert caller.get(f"{tags}/v1").json() == first.json()


def test_all_other_paths_have_errors_of_the_same_form(caller: Caller) -> None:
    assert Client().get(ROOT + "healthcheck").status_code == 204
    for method, path in [
        ("GET", "auth/users"),
        ("POST", "repositories/books/actions"),
        ("GET", "nothing"),
        ("GET", "user"),
    ]:
        status, message = caller.told(method, path)
        assert (status, "not" in message or "no " in message) == (405, True)
    answer = caller.send("PATCH", "repositories/books")
    assert (answer.status_code, answer.headers["Allow"]) == (405, "DELETE, GET")
