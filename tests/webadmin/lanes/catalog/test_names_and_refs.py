"""Repositories, branches, tags, references, the log: names, tenants, what is refused, what is written down."""

from __future__ import annotations

from typing import Any

import pytest

from engine.formats.ranges.errors import InvalidEntryKey
from engine.lanes.catalog.diff import Change
from engine.lanes.catalog.three_way import Compared
from engine.lanes.catalog.view import CommonPrefix
from tests.webadmin.lanes.catalog.short import CONTEXT, Catalog, keys_of, new_catalog
from webadmin.base.access.models import AuditEntry
from webadmin.lanes.catalog.errors import (
    BranchExists,
    BranchMissing,
    BranchProtected,
    BranchRefused,
    CatalogRefused,
    CommitRefused,
    EntryMissing,
    NameRefused,
    PreconditionFailed,
    RefMissing,
    RefRefused,
    RepositoryExists,
    RepositoryMissing,
    RepositoryReadOnly,
    TagExists,
    TagMissing,
)
from webadmin.lanes.catalog.models import BranchToken, Repository
from webadmin.lanes.catalog.services.branches import create_branch, delete_branch, list_branches
from webadmin.lanes.catalog.services.commits import merge_base
from webadmin.lanes.catalog.services.diffs import Difference, compare_refs, diff_branch, diff_refs
from webadmin.lanes.catalog.services.log import LogQuery, log_of
from webadmin.lanes.catalog.services.protection import Blocked, is_blocked, read_protection, write_protection
from webadmin.lanes.catalog.services.read_objects import get_entry, list_entries
from webadmin.lanes.catalog.services.refs import resolve
from webadmin.lanes.catalog.services.repositories import (
    NewRepository,
    create_repository,
    delete_repository,
    find_repository,
    list_repositories,
)
from webadmin.lanes.catalog.services.tags import create_tag, delete_tag, list_tags
from webadmin.lanes.catalog.states import TokenState


def test_a_repository_belongs_to_its_tenant(catalog: Catalog) -> None:
    other = new_catalog("globex")
    catalog.put("k", "x")
    assert other.visible() == {}
    assert [each.tenant for each in list_repositories("acme")[0]] == ["acme"]
    with pytest.raises(RepositoryMissing):
        find_repository("nobody", "repo")
    other.put("k", "y")
    theirs = other.commit().commit_id
    with pytest.raises(RefMissing):
        catalog.get("k", theirs)
    assert catalog.get("k") == "x"


@pytest.mark.parametrize("name", ["", "ab", "-abc", "Abc", "a" * 64, "a/b", "..", "a\0b", "é-repo"])
def test_a_repository_has_a_name_of_a_few_letters(catalog: Catalog, name: str) -> None:
    with pytest.raises(NameRefused):
        create_repository(NewRepository(tenant="acme", name=name, storage_namespace="local://x"), context=CONTEXT)


def test_neither_name_nor_place_is_given_twice_until_it_is_free(catalog: Catalog) -> None:
    for name, place in (("repo", "local://other"), ("other", "local://repo/")):
        with pytest.raises(RepositoryExists):
            create_repository(NewRepository(tenant="acme", name=name, storage_namespace=place), context=CONTEXT)
    catalog.put("k", "x")
    delete_repository(catalog.repository, context=CONTEXT)
    delete_repository(catalog.repository, context=CONTEXT)
    with pytest.raises(RepositoryMissing):
        find_repository("acme", "repo")
    assert new_catalog().visible() == {}
    assert Repository.objects.filter(name="repo").count() == 2
    assert AuditEntry.objects.filter(action="catalog_delete_repository").count() == 1


@pytest.mark.parametrize("name", ["", "a b", "a/b", "é", "-a", "a" * 256, "0" * 64, "a\n"])
def test_a_branch_has_a_plain_name(catalog: Catalog, name: str) -> None:
    with pytest.raises(NameRefused):
        create_branch(catalog.repository, name, "main", context=CONTEXT)


def test_branches_are_made_listed_and_deleted(catalog: Catalog) -> None:
    for name in ("b1", "b2", "a1"):
        catalog.branch(name)
    create_branch(catalog.repository, "b3", "main", is_hidden=True, context=CONTEXT)
    with pytest.raises(BranchExists):
        catalog.branch("b1")
    assert [each.name for each in list_branches(catalog.repository, prefix="b", amount=1)[0]] == ["b1"]
    found, has_more = list_branches(catalog.repository, prefix="b", after="b1", amount=1)
    assert ([each.name for each in found], has_more) == (["b2"], False)
    catalog.put("k", "x", "b1")
    delete_branch(catalog.repository, "b1", context=CONTEXT)
    for missing in (lambda: catalog.put("k", "x", "b1"), lambda: catalog.diff("b1"), lambda: catalog.commit("b1")):
        with pytest.raises(BranchMissing):
            missing()
    assert BranchToken.objects.filter(state=TokenState.RETIRED).count() == 1
    with pytest.raises(BranchRefused):
        delete_branch(catalog.repository, "main", context=CONTEXT)


def test_references_lead_to_commits(catalog: Catalog) -> None:
    root = catalog.head()
    catalog.put("k", "x")
    first = catalog.commit()
    create_tag(catalog.repository, "v1.0", "main", context=CONTEXT)
    catalog.put("k", "y")
    second = catalog.commit()
    catalog.put("k", "z")
    leads = {
        "main@": second,
        "main~0": second,
        "main~1": first,
        "main^": first,
        "main^^": root,
        "main~2": root,
        "main^0": second,
        "v1.0": first,
        "v1.0~1": root,
        first.commit_id: first,
        second.commit_id[:6] + "~": first,
    }
    assert {ref: resolve(catalog.repository, ref).commit for ref in leads} == leads
    assert all(resolve(catalog.repository, ref).branch is None for ref in leads)
    assert resolve(catalog.repository, "main").branch is not None
    assert (catalog.get("k"), catalog.get("k", "main@"), catalog.get("k", "v1.0")) == ("z", "y", "x")
    with pytest.raises(EntryMissing):
        catalog.get("k", "main~2")
    for ref in ("", "~1", "main~x", "main@x", "main\0", "x" * 500, f"main~{10**9}"):
        with pytest.raises(RefRefused):
            resolve(catalog.repository, ref)
    for ref in ("nothing", "a b", "main~3", "main^2", "0" * 64, "abcdef"):
        with pytest.raises(RefMissing):
            resolve(catalog.repository, ref)


def test_tags_name_commits(catalog: Catalog) -> None:
    create_tag(catalog.repository, "v1", "main", context=CONTEXT)
    with pytest.raises(TagExists):
        create_tag(catalog.repository, "v1", "main", context=CONTEXT)
    catalog.put("k", "x")
    catalog.commit()
    assert [tag.name for tag in list_tags(catalog.repository)[0]] == ["v1"]
    for name in ("", "a//b", "a..b", "a b", "0" * 64, "a.lock"):
        with pytest.raises(NameRefused):
            create_tag(catalog.repository, name, "main", context=CONTEXT)
    with pytest.raises(BranchExists):
        catalog.branch("v1")
    delete_tag(catalog.repository, "v1", context=CONTEXT)
    with pytest.raises(TagMissing):
        delete_tag(catalog.repository, "v1", context=CONTEXT)


def test_the_log_is_what_led_here(catalog: Catalog) -> None:
    for number in range(4):
        catalog.put(f"k{number % 2}", str(number))
        catalog.commit(message=str(number))
    catalog.branch("work", "main~2")
    catalog.put("w", "x", "work")
    catalog.commit("work", message="w")
    catalog.merge("work", message="merge")

    def log(**told: Any) -> list[str]:
        return [commit.message for commit in log_of(catalog.repository, "main", LogQuery(**told))[0]]

    assert set(log()) == {"merge", "3", "2", "w", "1", "0", "Repository created"}
    assert log(is_first_parent=True) == ["merge", "3", "2", "1", "0", "Repository created"]
    assert log(is_first_parent=True, keys=[b"k1"]) == ["3", "1"]
    assert log(is_first_parent=True, prefixes=[b"k"]) == ["3", "2", "1", "0"]
    assert log(is_first_parent=True, stop_at="main~2") == ["merge", "3", "2"]
    page, has_more = log_of(catalog.repository, "main", LogQuery(amount=2, is_first_parent=True))
    assert has_more
    assert log(after=page[-1].commit_id, amount=2, is_first_parent=True) == ["2", "1"]
    base = merge_base(catalog.repository, catalog.head("work"), catalog.head("main~1"))
    assert base is not None
    assert base.message == "1"


def test_diffs_between_references(catalog: Catalog) -> None:
    catalog.puts(a="x", b="x")
    catalog.commit()
    catalog.branch("work")
    catalog.puts("work", a="w", c="w")
    catalog.put("d/1", "w", "work")
    catalog.put("d/2", "w", "work")
    catalog.commit("work")
    catalog.puts(a="m", e="m")
    catalog.commit()

    def keys(items: tuple[Difference | CommonPrefix, ...]) -> list[str]:
        return [(item.change if isinstance(item, Compared) else item).key.decode() for item in items]

    asked = (catalog.repository, "main", "work")
    assert [(each.kind, each.key) for each in diff_refs(*asked).items if isinstance(each, Change)] == [
        ("changed", b"a"),
        ("added", b"c"),
        ("added", b"d/1"),
        ("added", b"d/2"),
        ("removed", b"e"),
    ]
    assert keys(diff_refs(*asked, delimiter=b"/").items) == ["a", "c", "d/", "e"]
    compared = compare_refs(*asked)
    assert keys(compared.items) == ["a", "c", "d/1", "d/2"]
    conflicts = [each.is_conflict for each in compared.items if isinstance(each, Compared)]
    assert conflicts == [True, False, False, False]
    page = compare_refs(*asked, amount=2)
    assert page.after is not None
    assert keys(compare_refs(*asked, after=page.after, prefix=b"d").items) == ["d/1", "d/2"]
    page = diff_refs(*asked, delimiter=b"/", after=b"d/")
    assert keys(page.items) == ["e"]
    with pytest.raises(CatalogRefused):
        diff_branch(catalog.repository, "main", amount=0)


@pytest.mark.row("B71", "B72")
def test_protection_rules_refuse_changes_of_branches(catalog: Catalog) -> None:
    rules = [{"pattern": "main*", "blocks": ["staging_write"]}, {"pattern": "*", "blocks": ["commit"]}]
    assert is_blocked(rules, "main", Blocked.STAGING_WRITE)
    assert is_blocked(rules, "main", Blocked.COMMIT)
    assert not is_blocked(rules, "dev", Blocked.STAGING_WRITE)
    assert not is_blocked([], "main", Blocked.COMMIT)
    _, checksum = read_protection(catalog.repository)
    write_protection(catalog.repository, rules, if_checksum=checksum, context=CONTEXT)
    with pytest.raises(PreconditionFailed):
        write_protection(catalog.repository, [], if_checksum=checksum, context=CONTEXT)
    for action in (lambda: catalog.put("k", "x"), lambda: catalog.delete("k"), catalog.commit):
        with pytest.raises(BranchProtected):
            action()
    for rule in ({"pattern": ""}, {"pattern": "a", "blocks": ["all"]}, {"blocks": []}):
        with pytest.raises(CatalogRefused):
            write_protection(catalog.repository, [rule], context=CONTEXT)


def test_a_read_only_repository_takes_no_changes(catalog: Catalog) -> None:
    Repository.objects.filter(pk=catalog.repository.pk).update(is_read_only=True)
    catalog.repository.refresh_from_db()
    for action in (
        lambda: catalog.put("k", "x"),
        catalog.commit,
        lambda: catalog.branch("b"),
        lambda: catalog.merge("main"),
    ):
        with pytest.raises(RepositoryReadOnly):
            action()
    assert catalog.visible() == {}
    with pytest.raises(RepositoryReadOnly, match="force"):
        delete_repository(catalog.repository, context=CONTEXT)
    assert find_repository("acme", "repo") == catalog.repository
    delete_repository(catalog.repository, context=CONTEXT, force=True)
    with pytest.raises(RepositoryMissing):
        find_repository("acme", "repo")


GOOD_KEYS = [
    "..",
    "../../etc/passwd",
    "/",
    "//",
    "a\nb",
    "é",
    "\U0001f600",
    " ",
    "%2e",
    "a'b\"",
    "k" * 1024,
    "\ud7ff",
    "\x7f",
]


def test_keys_are_kept_as_they_are(catalog: Catalog) -> None:
    for number, key in enumerate(GOOD_KEYS):
        catalog.put(key, str(number))
    expected = {key: str(number) for number, key in enumerate(GOOD_KEYS)}
    assert catalog.visible(amount=3) == expected
    assert list(catalog.visible()) == sorted(GOOD_KEYS, key=str.encode)
    catalog.commit()
    assert {key: catalog.get(key, "main@") for key in GOOD_KEYS} == expected
    catalog.delete("..")
    assert [key for _, key in catalog.diff()] == [".."]


@pytest.mark.parametrize("key", [b"", b"k" * 1025, b"a\0b", b"\xff", b"\xed\xa0\x80"])
def test_what_is_no_key_is_refused_with_the_reason(catalog: Catalog, key: bytes) -> None:
    from tests.webadmin.lanes.catalog.short import value
    from webadmin.lanes.catalog.services.write_objects import delete_entries, put_entry

    for action in (
        lambda: put_entry(catalog.repository, "main", key, value("x")),
        lambda: delete_entries(catalog.repository, "main", [b"k", key]),
        lambda: get_entry(catalog.repository, "main", key),
    ):
        with pytest.raises(InvalidEntryKey):
            action()


def test_commits_reject_text_that_cannot_be_stored(catalog: Catalog) -> None:
    catalog.put("k", "x")
    for told in ({"message": "a\0b"}, {"committer": ""}, {"metadata": {"k\0": "v"}}, {"message": "\ud800"}):
        with pytest.raises(CommitRefused):
            catalog.commit(**told)
    commit = catalog.commit(message="é\n", metadata={"ключ": "☃"})
    assert (commit.message, commit.metadata) == ("é\n", {"ключ": "☃"})


def test_listings_fold_common_prefixes(catalog: Catalog) -> None:
    for key in ("a/1", "a/2", "b", "c/1"):
        catalog.put(key, "x")
    page = list_entries(catalog.repository, "main", delimiter=b"/", amount=2)
    assert keys_of(page.items) == ["a/", "b"]
    assert page.after is not None
    assert keys_of(list_entries(catalog.repository, "main", delimiter=b"/", after=page.after).items) == ["c/"]
