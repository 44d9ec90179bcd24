"""The bytes of an upload that was refused: deleted if nothing can name them, else kept for readers of a commit."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.conf import LazySettings

from tests.webadmin.lanes.catalog.api.conftest import Caller, new_caller
from tests.webadmin.lanes.catalog.order_steps import INSERT, LOOK_AGAIN, PUT, TAKE_BACK
from tests.webadmin.lanes.catalog.short import CONTEXT, Catalog
from tests.webadmin.lanes.catalog.stepping import Stepped
from webadmin.lanes.catalog.places import catalog_store, data_prefix_of
from webadmin.lanes.catalog.services.branches import create_branch, delete_branch
from webadmin.lanes.catalog.services.repositories import find_repository

IS_NEW = {"If_None_Match": "*"}


@pytest.fixture
def real_caller(transactional_db: None, tmp_path: Path, settings: LazySettings) -> Caller:
    """The caller with real commits, for several connections."""
    return new_caller(tmp_path, settings)


@pytest.fixture
def books(real_caller: Caller) -> Catalog:
    return Catalog(find_repository("acme", "books"))


def objects(catalog: Catalog) -> int:
    return len(list(catalog_store().list(data_prefix_of(catalog.repository))))


def read(caller: Caller, key: str, ref: str = "main") -> tuple[int, bytes]:
    answer = caller.get(f"repositories/books/refs/{ref}/objects?path={key}")
    return answer.status_code, b"".join(answer.streaming_content) if answer.streaming else answer.content


def test_bytes_that_a_commit_holds_stay(real_caller: Caller, books: Catalog) -> None:
    uploading = Stepped(lambda: real_caller.put("k", b"mine", **IS_NEW), LOOK_AGAIN)
    books.commit()
    assert uploading.end().status_code == 412
    assert read(real_caller, "k") == (200, b"mine")


def test_bytes_whose_row_was_sealed_before_it_was_taken_back_stay(real_caller: Caller, books: Catalog) -> None:
    create_branch(books.repository, "work", "main", context=CONTEXT)
    books.put("k", "m", "work")
    books.commit("work")
    uploading = Stepped(lambda: real_caller.put("k", b"mine", **IS_NEW), INSERT)
    books.merge("work")
    uploading.to(TAKE_BACK)
    books.commit()
    assert uploading.end().status_code == 412
    assert read(real_caller, "k") == (200, b"mine")


def test_bytes_that_nothing_names_are_deleted(real_caller: Caller, books: Catalog) -> None:
    create_branch(books.repository, "work", "main", context=CONTEXT)
    books.put("k", "m", "work")
    books.commit("work")
    uploading = Stepped(lambda: real_caller.put("k", b"mine", **IS_NEW), INSERT)
    books.merge("work")
    assert objects(books) == 1
    assert uploading.end().status_code == 412
    assert (objects(books), books.visible()) == (0, {"k": "m"})


@pytest.mark.parametrize("condition", [{}, IS_NEW], ids=["plain", "if absent"])
def test_bytes_of_a_branch_that_was_deleted_stay_for_another_that_was_made_of_it(
    real_caller: Caller, books: Catalog, condition: dict[str, str]
) -> None:
    create_branch(books.repository, "work", "main", context=CONTEXT)
    uploading = Stepped(lambda: real_caller.put("k", b"mine", "work", **condition), LOOK_AGAIN)
    books.commit("work")
    create_branch(books.repository, "copy", "work", context=CONTEXT)
    delete_branch(books.repository, "work", context=CONTEXT)
    assert uploading.end().status_code == 404
    assert read(real_caller, "k", "copy") == (200, b"mine")


def test_bytes_for_a_branch_that_was_deleted_before_are_deleted(real_caller: Caller, books: Catalog) -> None:
    create_branch(books.repository, "work", "main", context=CONTEXT)
    uploading = Stepped(lambda: real_caller.put("k", b"mine", "work"), PUT)
    delete_branch(books.repository, "work", context=CONTEXT)
    assert uploading.end().status_code == 404
    assert objects(books) == 0
