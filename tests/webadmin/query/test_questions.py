"""Questions through the index: what is found, that merges underneath change nothing, that deleted data is not shown."""

from __future__ import annotations

import pytest

from engine.formats.profile_block.selectors import parse_selector
from engine.query.errors import InvalidQuestion, QueryTooLarge
from engine.query.model import QueryLimits, Question
from engine.query.select_points import Grid
from tests.engine.query.naive import Folded
from tests.segments import SERVICES
from tests.webadmin.lanes.profiles.test_delete_requests import delete
from tests.webadmin.query.stored import Interrupted, Stacks, Stored
from tests.webadmin.service import check_invariants
from webadmin.lanes.profiles.models import Block
from webadmin.query import questions
from webadmin.query.questions import (
    Answer,
    query_label_names,
    query_label_values,
    query_points,
    query_profile_types,
    query_series,
    query_stacks,
)

CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
TENANT = ("quarry",)


def always(selector: str = "{}") -> Question:
    return Question(start_ms=1, end_ms=1 << 43, matchers=parse_selector(selector)).of_type(CPU)


def stacks(question: Question, tenants: tuple[str, ...] = TENANT) -> Answer[Folded]:
    return query_stacks(tenants, question, Folded)


def complete(answer: Answer[Folded]) -> Stacks:
    assert answer.report.damage == ()
    return answer.result.stacks


def test_selectors_and_ranges_choose_services_hosts_and_times(stored: Stored) -> None:
    stored.write(6)
    everything = complete(stacks(always()))
    assert everything
    by_service = [complete(stacks(always(f'{{service_name="{name}"}}'))) for name in SERVICES]
    assert by_service[0] + by_service[1] == everything
    by_host = [complete(stacks(always(f'{{host="host-{n}"}}'))) for n in range(3)]
    assert sum(by_host, Stacks()) == everything
    middle = stored.first_ms + 1000
    early, late = always(), always()
    early = Question(start_ms=1, end_ms=middle, matchers=early.matchers)
    late = Question(start_ms=middle + 1, end_ms=1 << 43, matchers=late.matchers)
    assert complete(stacks(early)) + complete(stacks(late)) == everything
    assert complete(stacks(early)), "and both have some"
    assert complete(stacks(late))
    questions.query_engine().cache._entries.clear()
    for selector in ('{service_name="checkout"}', '{service_name=~"check.+"}', '{service_name!="search"}'):
        cost = stacks(always(selector)).report.cost
        assert (cost.objects_opened, cost.datasets_read, cost.requests) == (6, 6, 6), "of each object one dataset"
    assert stacks(Question(start_ms=1, end_ms=1 << 43).of_type("a:b:c:d:e")).report.cost.objects_opened == 0
    assert complete(stacks(always('{service_name=~"check.*", service_name!="checkout"}'))) == {}
    assert complete(stacks(always(), tenants=("river",))) == {}
    assert complete(stacks(always(), tenants=("river", "quarry"))) == everything


def test_a_range_long_past_or_before_all_time_is_empty(stored: Stored) -> None:
    stored.write(1)
    assert complete(query_stacks(TENANT, Question(start_ms=-9, end_ms=-1), Folded)) == {}
    assert complete(query_stacks(TENANT, Question(start_ms=-9, end_ms=1), Folded)) == {}
    with pytest.raises(InvalidQuestion):
        query_stacks(TENANT, Question(start_ms=2, end_ms=1), Folded)


def test_labels_and_types_and_points_come_through_the_index(stored: Stored) -> None:
    stored.write(4)
    assert query_profile_types(TENANT, always()).result == [CPU]
    assert query_label_values(TENANT, always(), "host").result == ["host-0", "host-1", "host-2"]
    assert {"service_name", "host", "__profile_type__"} <= set(query_label_names(TENANT, always()).result)
    assert query_series(TENANT, always(), ["service_name"]).result == [(("service_name", name),) for name in SERVICES]
    grid = Grid(start_ms=stored.first_ms, end_ms=stored.last_ms, step_ms=1000, group_by=("service_name",))
    answer = query_points(TENANT, always(), grid)
    assert sum(point.value for each in answer.result for point in each.points) <= sum(
        complete(stacks(always())).values()
    )
    assert [len(each.points) for each in answer.result] == [2, 2]
    with pytest.raises(QueryTooLarge):
        query_points(TENANT, always(), grid, limits=QueryLimits(points=1))


def test_a_merge_changes_no_answer(stored: Stored) -> None:
    stored.write(24)
    before = stacks(always())
    labels = query_series(TENANT, always()).result
    assert stored.compact() > 0
    after = stacks(always())
    assert complete(after) == complete(before)
    assert query_series(TENANT, always()).result == labels
    assert after.report.cost.objects_opened < before.report.cost.objects_opened
    check_invariants()


@pytest.mark.parametrize("number", [0, 1, 5, 20])
@pytest.mark.parametrize("deleted", [False, True])
def test_a_merge_while_an_answer_reads_is_not_noticed(stored: Stored, number: int, deleted: bool) -> None:
    stored.write(24)
    expected = complete(stacks(always()))
    happened: list[int] = []

    def happen() -> None:
        if happened:
            return
        happened.append(stored.compact())
        if deleted:
            assert stored.delete_replaced() > 0

    questions.query_engine().cache._entries.clear()
    found = query_stacks(TENANT, always(), lambda: Interrupted(happen, number))
    assert happened
    assert happened[0] > 0
    assert complete(found) == expected
    check_invariants()


def test_a_merge_between_the_look_and_the_first_read_is_not_noticed(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored.write(24)
    expected = complete(stacks(always()))
    questions.query_engine().cache._entries.clear()
    look = questions.find_query_blocks
    looks: list[int] = []

    def look_and_merge(*arguments):
        found = look(*arguments)
        looks.append(len(found))
        if len(looks) == 1:
            stored.compact()
            assert stored.delete_replaced() > 0
        return found

    monkeypatch.setattr(questions, "find_query_blocks", look_and_merge)
    assert complete(stacks(always())) == expected
    assert len(looks) == 2
    assert looks[1] < looks[0]


def test_a_lost_object_is_named_and_looked_up_once(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    stored.write(3)
    stored.store.delete(stored.keys[1])
    look = questions.find_query_blocks
    looks: list[int] = []
    monkeypatch.setattr(questions, "find_query_blocks", lambda *given: looks.append(1) or look(*given))
    answer = stacks(always())
    assert {damage.key for damage in answer.report.damage} == {stored.keys[1]}
    assert answer.report.is_partial
    assert len(looks) == 2, "a second look says that nothing has replaced it"
    assert answer.result.stacks


def test_deleted_data_is_not_shown_whatever_the_objects_hold(stored: Stored) -> None:
    stored.write(6)
    by_host = {n: complete(stacks(always(f'{{host="host-{n}"}}'))) for n in range(3)}
    delete(tenant="quarry", selector='{host="host-1"}')
    assert complete(stacks(always())) == by_host[0] + by_host[2]
    assert query_label_values(TENANT, always(), "host").result == ["host-0", "host-2"]
    delete(tenant="quarry", service="search")
    assert query_label_values(TENANT, always(), "service_name").result == ["checkout"]
    middle = stored.first_ms + 1000
    expected = complete(stacks(Question(start_ms=middle, end_ms=1 << 43, matchers=always().matchers)))
    delete(tenant="quarry", until_ms=middle)
    assert complete(stacks(always())) == expected != {}
    assert stored.compact() == 0 or complete(stacks(always())) == expected


def test_datasets_of_old_writers_are_found_by_the_name_of_their_service(stored: Stored) -> None:
    from dataclasses import replace

    from tests.segments import make_segment, put_segment

    data, meta = make_segment(int(stored.service.clock.now_ms), tenants=("quarry",))
    bare = replace(meta, datasets=tuple(replace(dataset, labels=()) for dataset in meta.datasets))
    put_segment(stored.store, data, meta)
    stored.service.add(bare)
    assert Block.objects.count() == 1
    assert query_label_values(TENANT, always('{service_name="search"}'), "service_name").result == ["search"]
    assert query_label_values(TENANT, always('{service_name!="search"}'), "service_name").result == ["checkout"]
    assert query_label_values(TENANT, always('{service_name=~"nothing"}'), "service_name").result == []
