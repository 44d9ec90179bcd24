"""An error in one table, bucket or repository does not stop the round of the others."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pytest

from engine.core.errors import BadObject
from webadmin.schedule.rounds import Round, run_round


@dataclass(frozen=True)
class Report:
    files: int


ERRORS = {"bad": BadObject("footer", 8, "no magic"), "odd": ValueError("a \0 byte")}


def clean(name: str) -> Report:
    if name in ERRORS:
        raise ERRORS[name]
    return Report(len(name))


def test_an_error_of_any_kind_in_one_subject_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        done = run_round("table_not_cleaned", ["bad", "one", "odd", "three"], clean)
    assert done.named == [("one", Report(3)), ("three", Report(5))]
    assert done.total("files") == 8
    assert done.failed == {"bad": f"BadObject: {ERRORS['bad']}", "odd": "ValueError: a   byte"}
    traces = {record.getMessage().split()[1]: bool(record.exc_info) for record in caplog.records}
    assert traces == {"name=bad": False, "name=odd": True}


def test_subjects_of_one_name_are_all_reported_and_a_failure_is_noted_by_the_lane() -> None:
    done = run_round("x", ["one", "one", "bad"], clean, note_failure=lambda name, error: f"{name} backs off")
    assert done.reports == [Report(3), Report(3)]
    assert done.failed == {"bad": "bad backs off"}
    assert run_round("x", [], clean) == Round()
