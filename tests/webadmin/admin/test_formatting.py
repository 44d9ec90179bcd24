"""What operators read: sizes, times, counts, JSON; and that nothing from a table is ever taken for markup."""

from __future__ import annotations

import json
import re

import pytest
from django.utils.html import escape
from hypothesis import given
from hypothesis import strategies as st

from webadmin.adminkit import formatting as show


def plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ").replace("\N{NARROW NO-BREAK SPACE}", " ")


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 KiB"),
        (34_934, "34.1 KiB"),
        (512 << 20, "512 MiB"),
        (1023 << 20, "1.0 GiB"),
        (5 << 60, "5120 PiB"),
        (None, "–"),  # noqa: RUF001
    ],
)
def test_sizes_have_a_unit_and_few_digits(size: int | None, text: str) -> None:
    assert plain(show.size_text(size)) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 s"),
        (999, "0 s"),
        (1000, "1 s"),
        (61_000, "1 min 1 s"),
        (3_600_000, "1 h"),
        (3_600_000 + 5000, "1 h"),
        (7_500_000, "2 h 5 min"),
        (90_000_000, "1 d 1 h"),
        (-4_000, "-4 s"),
    ],
)
def test_durations_have_their_two_largest_units(ms: int, text: str) -> None:
    assert plain(show.duration_text(ms)) == text


def test_counts_speak_in_words() -> None:
    assert [plain(show.counted(count, "job")) for count in (0, 1, 2, 12_345)] == [
        "no jobs",
        "1 job",
        "2 jobs",
        "12 345 jobs",
    ]


@pytest.mark.parametrize(
    ("ms", "text"), [(0, "1970-01-01 00:00:00"), (1_790_000_000_999, "2026-09-21 14:13:20"), (-1, "-1 ms")]
)
def test_moments_are_utc(ms: int, text: str) -> None:
    assert show.moment_text(ms) == text


def test_a_moment_no_calendar_knows_stays_a_number() -> None:
    assert show.moment_text(1 << 62) == f"{1 << 62} ms"


def test_a_range_within_a_day_names_the_day_once() -> None:
    assert "2026-09-21 14:13:20 … 14:13:35" in show.time_range(1_790_000_000_000, 1_790_000_015_000)
    assert "2026-09-21 14:13:20 … 2026-09-22 14:13:20" in show.time_range(1_790_000_000_000, 1_790_086_400_000)


@given(st.text())
def test_text_from_a_table_is_never_markup(text: str) -> None:
    for cell in (show.badge(text, "good", text), show.code(text), show.short_code(text), show.note(text, text)):
        tags_removed = re.sub(r'<span class="[^"]*"(?: title="[^"]*")?>|</span>', "", cell)
        assert "<" not in tags_removed
        assert escape(text) in cell


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=10), inner, max_size=5),
    max_leaves=20,
)


@given(JSON)
def test_json_is_shown_as_it_is_and_never_as_markup(data: object) -> None:
    shown = show.json_text(data)
    bare = re.sub(r'<span class="lt-key">|</span>', "", shown)
    assert bare == escape(json.dumps(data, indent=2, ensure_ascii=False))


def test_keys_of_json_are_set_apart() -> None:
    assert '<span class="lt-key">&quot;job&quot;</span>: &quot;j&quot;' in show.json_text({"job": "j"})


def test_long_strings_and_lists_are_cut_with_a_count() -> None:
    shown = show.json_text({"metadata": "Q" * 5000, "sources": list(range(1000))})
    assert "(5000 characters)" in shown
    assert "… 800 more" in shown
    assert len(shown) < 10_000


def test_a_huge_document_is_cut() -> None:
    shown = show.json_text({str(number): ["x" * 150] * 190 for number in range(60)})
    assert shown.endswith(" more characters")
    assert len(shown) < show.JSON_SHOWN_MAX * 2


@pytest.mark.parametrize(("done", "total", "share"), [(0, 0, 0), (1, 3, 33), (7, 7, 100), (9, 7, 100), (-5, 7, 0)])
def test_progress_stays_between_none_and_all(done: int, total: int, share: int) -> None:
    assert f"width:{share}%" in show.progress_bar(done, total)
