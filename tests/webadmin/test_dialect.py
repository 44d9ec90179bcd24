"""Rows written in bulk come back as they were, whatever their texts hold."""

from __future__ import annotations

import pytest

from webadmin.base.database.dialect import insert_rows, update_rows
from webadmin.lanes.profiles.models import DatasetName, LabelSets

PLAIN = ("web", "", "NULL", "{}", "a,b", "grüße", " ")
ODD = ('quo"te', '"', '","', "back\\slash", "\\x00", '{"a":"b"}')


@pytest.mark.parametrize("texts", [PLAIN, ODD, PLAIN + ODD, *[(text,) for text in ODD]], ids=repr)
def test_texts_come_back_as_they_were(db: None, texts: tuple[str, ...]) -> None:
    insert_rows(DatasetName, ("name",), [(text,) for text in texts])
    assert list(DatasetName.objects.order_by("id").values_list("name", flat=True)) == list(texts)
    numbered = [(row.id, row.name[::-1]) for row in DatasetName.objects.all()]
    assert update_rows(DatasetName, ("id",), ("name",), numbered) == len(texts)
    assert dict(DatasetName.objects.values_list("id", "name")) == dict(numbered)


def test_json_comes_back_as_it_was(db: None) -> None:
    insert_rows(LabelSets, ("digest", "label_sets"), [("1", '[[["a", "b"]]]'), ("2", '[[["c\\"", "\\\\d"]]]')])
    assert dict(LabelSets.objects.values_list("digest", "label_sets")) == {"1": [[["a", "b"]]], "2": [[['c"', "\\d"]]]}
