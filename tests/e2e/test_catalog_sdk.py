"""The unmodified Python SDKs of lakeFS against a real web process: what their documents promise has to hold here."""

from __future__ import annotations

import http.client
import itertools
import os
import re
import shlex
from collections.abc import Callable, Iterator
from datetime import timedelta
from urllib.parse import urlsplit

import lakefs
import lakefs_sdk
import pytest
from lakefs.exceptions import (
    BadRequestException,
    ConflictException,
    ForbiddenException,
    NotAuthorizedException,
    NotFoundException,
    ObjectExistsException,
    ObjectNotFoundException,
    ServerException,
    TransactionException,
    UnsupportedOperationException,
)

from tests.e2e.catalog_service import CatalogService
from tests.e2e.write_path import manage
from tests.processes import ROOT, Processes, wait_until

pytestmark = [pytest.mark.stack, pytest.mark.xdist_group("catalog_sdk")]

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CatalogService]:
    with Processes() as processes:
        yield CatalogService(tmp_path_factory.mktemp("catalog"), processes)


@pytest.fixture(scope="module")
def client(service: CatalogService) -> lakefs.Client:
    return service.client(service.key("tester"))


@pytest.fixture
def repository(client: lakefs.Client) -> lakefs.Repository:
    name = f"repository-{next(_numbers)}"
    return lakefs.Repository(name, client=client).create(storage_namespace=f"local://{name}")


@pytest.fixture
def main(repository: lakefs.Repository) -> lakefs.Branch:
    """The branch ``main`` with one commit: ``a`` and ``b/c``."""
    branch = repository.branch("main")
    branch.object("a").upload(b"one")
    branch.object("b/c").upload("two", content_type="text/plain", metadata={"who": "ann"})
    branch.commit("first", metadata={"step": "1"})
    return branch


def changes(found: Iterator[lakefs.Change]) -> list[tuple[str, str]]:
    return [(change.type, change.path) for change in found]


def paths(branch: lakefs.Reference, **asked: str | int) -> list[str]:
    return [found.path for found in branch.objects(**asked)]


def test_a_repository_is_created_once_found_listed_and_deleted(client: lakefs.Client) -> None:
    assert client.version
    made = lakefs.Repository("books", client=client).create(storage_namespace="local://books", default_branch="trunk")
    assert (made.properties.default_branch, made.properties.storage_namespace) == ("trunk", "local://books")
    with pytest.raises(ConflictException):
        lakefs.Repository("books", client=client).create(storage_namespace="local://other")
    again = lakefs.Repository("books", client=client).create(storage_namespace="local://other", exist_ok=True)
    assert again.properties.id == "books"
    assert again.metadata == {}
    lakefs.Repository("boats", client=client).create(storage_namespace="local://boats")
    listed = lakefs.repositories(client, prefix="bo", amount=1)
    assert [each.id for each in listed] == ["boats", "books"], "one a page"
    assert [branch.id for branch in made.branches()] == ["trunk"]
    made.delete()
    with pytest.raises(NotFoundException):
        lakefs.Repository("books", client=client).properties  # noqa: B018  (reading it asks the service)


def test_objects_are_written_read_in_parts_and_described(main: lakefs.Branch) -> None:
    stored = main.object("data/day=1/rows")
    with stored.writer("wb", content_type="text/csv", metadata={"origin": "here"}) as out:
        out.write(b"0123")
        out.write(b"456789")
    described = stored.stat()
    assert (described.size_bytes, described.content_type, described.metadata) == (10, "text/csv", {"origin": "here"})
    assert described.checksum == "781e5e245d69b566979b86e28d23f2c7", "the MD5 of the bytes"
    with stored.reader("r") as source:
        assert source.read(4) == "0123"
        source.seek(-2, os.SEEK_END)
        assert source.read() == "89"
        assert source.read(1) == ""
    with stored.reader("rb") as source:
        source.seek(99)
        assert source.read() == b"", "behind the end there is nothing, as in a file"
    assert stored.exists()
    assert not main.object("data/day=2").exists()
    with pytest.raises(ObjectNotFoundException):
        main.object("data/day=2").reader().read()
    with pytest.raises(ObjectExistsException):
        stored.upload(b"other", mode="x")
    main.object("empty").upload(b"")
    assert main.object("empty").reader("rb").read() == b""
    assert paths(main, delimiter="/") == ["a", "b/", "data/", "empty"]
    assert paths(main, prefix="data/", max_amount=1) == ["data/day=1/rows"]
    assert paths(main, after="b/", delimiter="/", amount=1) == ["data/", "empty"]
    main.object("data/day=1/rows").delete()
    assert paths(main) == ["a", "b/c", "empty"]


def test_a_large_object_goes_through_in_pieces(service: CatalogService, main: lakefs.Branch) -> None:
    piece = os.urandom(1 << 20)
    with main.object("large").writer("wb", pre_sign=False) as out:
        for _ in range(40):
            out.write(piece)
    with main.object("large").reader("rb") as source:
        source.seek((39 << 20) - 3)
        assert source.read(6) == piece[-3:] + piece[:3]
        source.seek(0)
        assert source.read() == piece * 40


def test_branches_commits_and_references(repository: lakefs.Repository, main: lakefs.Branch) -> None:
    feature = repository.branch("feature").create("main")
    with pytest.raises(ConflictException):
        repository.branch("feature").create("main")
    repository.branch("feature").create("main", exist_ok=True)
    assert feature.head.id == main.head.id
    feature.object("a").upload(b"changed")
    feature.object("new").upload(b"new")
    feature.object("b/c").delete()
    expected = [("changed", "a"), ("removed", "b/c"), ("added", "new")]
    assert changes(feature.uncommitted(amount=1)) == expected
    assert changes(main.uncommitted()) == []
    feature.commit("second", metadata={"by": "test"})
    assert changes(feature.uncommitted()) == []
    assert changes(main.diff(feature)) == expected
    assert changes(main.diff(feature, prefix="n")) == [("added", "new")]
    assert changes(main.diff(feature, delimiter="/")) == [("changed", "a"), ("prefix_changed", "b/"), ("added", "new")]
    assert changes(main.diff(feature, type="two_dot", max_amount=1)) == [("changed", "a")]
    commit = feature.get_commit()
    assert (commit.message, commit.committer, commit.metadata) == ("second", "tester", {"by": "test"})
    assert [each.message for each in feature.log(amount=1)] == ["second", "first", "Repository created"]
    assert [each.message for each in feature.log(objects=["new"])] == ["second"]
    assert feature.object("a").reader("rb").read() == b"changed"
    assert repository.ref("feature~1").object("a").reader("rb").read() == b"one"
    assert repository.commit(commit.id).object("new").reader("rb").read() == b"new"
    assert [each.id for each in repository.branches(prefix="f")] == ["feature"]
    with pytest.raises(BadRequestException):
        feature.commit("nothing")
    feature.delete()
    with pytest.raises(NotFoundException):
        feature.get_commit()


def test_what_is_staged_is_not_in_the_commit(repository: lakefs.Repository, main: lakefs.Branch) -> None:
    main.object("a").upload(b"staged")
    assert main.object("a").reader("rb").read() == b"staged"
    assert repository.ref("main@").object("a").reader("rb").read() == b"one"
    assert repository.ref("main~0").object("a").reader("rb").read() == b"one"


def test_merging_and_its_conflicts(repository: lakefs.Repository, main: lakefs.Branch) -> None:
    feature = repository.branch("feature").create("main")
    feature.object("a").upload(b"theirs")
    feature.object("only").upload(b"theirs")
    feature.commit("on feature")
    main.object("b/c").upload(b"ours")
    main.commit("on main")
    merged = feature.merge_into(main, message="together")
    assert main.object("a").reader("rb").read() == b"theirs"
    assert main.object("b/c").reader("rb").read() == b"ours"
    commit = main.get_commit()
    assert (commit.id, commit.message, len(commit.parents)) == (merged, "together", 2)
    feature.object("a").upload(b"again theirs")
    feature.commit("again on feature")
    main.object("a").upload(b"again ours")
    main.commit("again on main")
    assert ("conflict", "a") in changes(main.diff(feature))
    with pytest.raises(ConflictException, match="a"):
        feature.merge_into(main)
    feature.merge_into(main, strategy="dest-wins")
    assert main.object("a").reader("rb").read() == b"again ours"
    main.merge_into(feature, strategy="source-wins")
    assert feature.object("a").reader("rb").read() == b"again ours"
    with pytest.raises(BadRequestException):
        main.merge_into(feature)
    main.object("a").upload(b"not committed")
    feature.object("b/c").upload(b"more")
    feature.commit("more")
    with pytest.raises(BadRequestException, match="uncommitted"):
        feature.merge_into(main)


def test_transactions_come_to_a_branch_whole_or_not_at_all(repository: lakefs.Repository, main: lakefs.Branch) -> None:
    with main.transact(commit_message="both", tag="v1") as work:
        work.object("x").upload(b"x")
        work.object("a").delete()
        assert paths(main) == ["a", "b/c"]
    assert paths(main) == ["b/c", "x"]
    assert repository.tag("v1").get_commit().id == main.get_commit().id

    def work_and(then: Callable[[], object]) -> None:
        with main.transact() as work:
            work.object("x").upload(b"mine")
            then()

    def meanwhile() -> None:
        main.object("x").upload(b"yours")
        main.commit("in between")

    with pytest.raises(ZeroDivisionError):
        work_and(lambda: 1 / 0)
    assert main.object("x").reader("rb").read() == b"x"
    with pytest.raises(TransactionException):
        work_and(meanwhile)
    assert main.object("x").reader("rb").read() == b"yours"
    assert [branch.id for branch in repository.branches()] == ["main"]


def test_tags_name_commits(repository: lakefs.Repository, main: lakefs.Branch) -> None:
    tag = repository.tag("releases/v1").create("main")
    main.object("a").upload(b"later")
    main.commit("later")
    assert tag.object("a").reader("rb").read() == b"one"
    with pytest.raises(ConflictException):
        repository.tag("releases/v1").create("main")
    assert [each.id for each in repository.tags()] == ["releases/v1"]
    tag.delete()
    with pytest.raises(NotFoundException):
        repository.tag("releases/v1").get_commit()


def test_changes_are_taken_back(main: lakefs.Branch) -> None:
    for path in ("a", "b/c", "b/d", "e"):
        main.object(path).upload(b"changed")
    main.reset_changes("object", "a")
    main.reset_changes("common_prefix", "b/")
    assert changes(main.uncommitted()) == [("added", "e")]
    main.reset_changes()
    assert changes(main.uncommitted()) == []
    main.delete_objects(["a", "b/c", "never there"])
    assert paths(main) == []
    main.commit("all gone")
    main.revert("main")
    assert paths(main) == ["a", "b/c"]


def test_a_commit_is_picked_onto_another_branch(repository: lakefs.Repository, main: lakefs.Branch) -> None:
    feature = repository.branch("feature").create("main")
    main.object("fix").upload(b"fix")
    main.commit("a fix", metadata={"ticket": "7"})
    main.object("other").upload(b"other")
    main.commit("something else")
    picked = feature.cherry_pick("main~1")
    assert (picked.message, picked.metadata) == ("a fix", {"ticket": "7"})
    assert paths(feature) == ["a", "b/c", "fix"]


def test_objects_that_lie_in_the_store_are_imported(service: CatalogService, main: lakefs.Branch) -> None:
    folder = service.home / "tables" / "acme" / f"lake-{next(_numbers)}"
    (folder / "day=1").mkdir(parents=True)
    for number in range(3):
        (folder / "day=1" / f"{number}.csv").write_bytes(b"%d" % number)
    (folder / "one").write_bytes(b"alone")
    main.object("b/old").upload(b"is replaced")
    main.object("solo-not").upload(b"stays")
    main.commit("before")
    wanted = main.import_data("imported", metadata={"from": "lake"})
    wanted.prefix(f"{folder.as_uri()}/day=1/", destination="b/").object(f"{folder.as_uri()}/one", destination="solo")
    status = wanted.run(poll_interval=timedelta(milliseconds=50))
    assert (status.completed, status.ingested_objects) == (True, 4)
    assert (status.commit.message, status.commit.metadata) == ("imported", {"from": "lake"})
    assert paths(main) == ["a", "b/0.csv", "b/1.csv", "b/2.csv", "solo", "solo-not"]
    assert main.object("b/2.csv").reader("rb").read() == b"2"
    assert main.object("solo").stat().physical_address == f"{folder.as_uri()}/one"
    with pytest.raises(ConflictException):
        wanted.cancel()
    with pytest.raises(BadRequestException, match="objects of acme are in"):
        main.import_data().prefix(f"file://{service.home}/tables/other/", destination="x/").start()
    missing = main.import_data().object(f"{folder.as_uri()}/nothing", destination="x")
    with pytest.raises(lakefs.exceptions.ImportManagerException, match="nothing"):
        missing.run(poll_interval=timedelta(milliseconds=50))


def test_a_wrong_key_is_refused(service: CatalogService) -> None:
    for name in ("nobody", "lw_000000000000"):
        client = lakefs.Client(host=f"{service.address}/lakefs/api/v1", username=name, password="wrong")
        with pytest.raises(NotAuthorizedException):
            client.version  # noqa: B018  (reading it asks the service)


def test_the_generated_client_uploads_forms_links_and_copies(
    service: CatalogService, client: lakefs.Client, repository: lakefs.Repository, main: lakefs.Branch
) -> None:
    sdk = client.sdk_client
    sdk.health_check_api.health_check()
    uploaded = sdk.objects_api.upload_object(repository.id, "main", "form", content=b"form\r\n--bytes\0")
    assert (uploaded.size_bytes, uploaded.content_type) == (14, "application/octet-stream")
    assert main.object("form").reader("rb").read() == b"form\r\n--bytes\0"
    with pytest.raises(lakefs_sdk.ApiException) as refused:
        sdk.objects_api.upload_object(repository.id, "main", "form", content=b"x", if_none_match="*")
    assert refused.value.status == 412
    sdk.objects_api.upload_object(repository.id, "main", "form", content=b"next", if_match=uploaded.checksum)
    with pytest.raises(lakefs_sdk.ApiException) as refused:
        sdk.objects_api.upload_object(repository.id, "main", "form", content=b"late", if_match=uploaded.checksum)
    assert refused.value.status == 412
    place = sdk.staging_api.get_physical_address(repository.id, "main", "linked")
    metadata = lakefs_sdk.StagingMetadata(staging=place, checksum="abc", size_bytes=5, user_metadata={"by": "hand"})
    with pytest.raises(lakefs_sdk.ApiException, match="nothing was written"):
        sdk.staging_api.link_physical_address(repository.id, "main", "linked", metadata)
    with open(urlsplit(place.physical_address).path, "wb") as file:
        file.write(b"bytes")
    linked = sdk.staging_api.link_physical_address(repository.id, "main", "linked", metadata)
    assert (linked.checksum, linked.metadata, linked.physical_address) == (
        "abc",
        {"by": "hand"},
        place.physical_address,
    )
    copied = main.object("linked").copy("main", "copied")
    assert copied.reader("rb").read() == b"bytes"
    sdk.objects_api.update_object_user_metadata(
        repository.id, "main", "copied", lakefs_sdk.UpdateObjectUserMetadata(set={"by": "me"})
    )
    assert main.object("copied").stat().metadata == {"by": "me"}
    head = sdk.objects_api.head_object_with_http_info(repository.id, "main", "linked", range="bytes=1-2")
    assert (head.status_code, head.headers["Content-Range"]) == (206, "bytes 1-2/5")
    told = sdk.objects_api.delete_objects(repository.id, "main", lakefs_sdk.PathList(paths=["copied", "", "a\0b"]))
    assert [(error.status_code, error.path) for error in told.errors] == [(400, ""), (400, "a\0b")]
    base = sdk.refs_api.find_merge_base(repository.id, "main", "main")
    assert base.base_commit_id == main.head.id
    rules = [lakefs_sdk.BranchProtectionRule(pattern="ma*")]
    sdk.repositories_api.set_branch_protection_rules(repository.id, rules)
    assert sdk.repositories_api.get_branch_protection_rules(repository.id)[0].pattern == "ma*"
    with pytest.raises(ForbiddenException):
        main.object("a").upload(b"protected")


def test_unsupported_operations_are_rejected(client: lakefs.Client, repository: lakefs.Repository) -> None:
    with pytest.raises(lakefs_sdk.ApiException) as refused:
        client.sdk_client.actions_api.list_repository_runs(repository.id)
    assert refused.value.status == 405
    with pytest.raises(UnsupportedOperationException):
        repository.branch("main").object("a").stat(pre_sign=True)


def test_an_upload_that_breaks_off_leaves_nothing(service: CatalogService, main: lakefs.Branch) -> None:
    def count_files() -> int:
        return sum(1 for path in (service.home / "objects").rglob("*") if path.is_file())

    before = count_files()
    connection = http.client.HTTPConnection(urlsplit(service.address).netloc, timeout=10)
    headers = main._client.sdk_client._api.configuration.auth_settings()["basic_auth"]
    connection.putrequest("POST", f"/lakefs/api/v1/repositories/{main.repo_id}/branches/main/objects?path=half")
    connection.putheader(headers["key"], headers["value"])
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders(b"5\r\nhello\r\n")
    connection.close()
    assert not main.object("half").exists()
    with pytest.raises(ServerException):
        main.object("half").stat()
    wait_until(lambda: count_files() == before, "the server notices, and takes away what it had")


PAGE = (ROOT / "docs/how-to/use-the-catalog-with-the-sdk.md").read_text()


def test_the_how_to_works_as_written(
    service: CatalogService, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    program, *arguments = shlex.split(shell[0])
    assert program == "lithify"
    key = dict(line.split(": ") for line in manage(service.environment, *arguments).splitlines())
    exports = shell[2].replace("http://127.0.0.1:8000", service.address)
    for name, value in re.findall(r"export (\w+)=(.*)", exports):
        monkeypatch.setenv(name, re.sub(r"<(\w+)>", lambda told: key[told[1]], value))
    monkeypatch.setenv("LAKECTL_CONFIG_FILE", str(service.home / "none"))
    lake = service.home / "tables/acme/lake"
    lake.mkdir(parents=True)
    (lake / "1.csv").write_bytes(b"1")
    program_text = "".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    for said, here in (
        ("file:///data/tables", f"file://{service.home}/tables"),
        ("imported.run()", "imported.run(poll_interval=soon)"),
    ):
        assert said in program_text
        program_text = program_text.replace(said, here)
    names = {"soon": timedelta(milliseconds=50)}
    exec(compile(program_text, "the how-to", "exec"), names)
    [loops] = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert capsys.readouterr().out == loops + loops + "Roses are red.\n ['poems/second.txt']\n1\n"
    assert paths(names["main"]) == ["lake/1.csv", "poems/second.txt"]
