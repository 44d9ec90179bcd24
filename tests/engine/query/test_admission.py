"""Which queries run and which wait: memory is shared first come, first served, and no query waits for ever."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from engine.query.admission import RETRY_SECONDS, Caller, MemoryBudget
from engine.query.errors import QueryAbandoned, QueryBusy, QueryTimedOut
from tests.processes import wait_until

PATIENT = 300.0


@pytest.fixture
def people() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(20) as pool:
        yield pool


def budget(bytes_max: int, *, waiting_max: int = 50, wait_seconds: float = PATIENT) -> MemoryBudget:
    return MemoryBudget(bytes_max, waiting_max=waiting_max, wait_seconds=wait_seconds)


def ask(caller: Caller, more: int) -> Caller:
    with caller.turn():
        caller.hold(caller.bytes_held + more)
    return caller


def test_queries_that_fit_run_at_once_and_the_rest_first_come_first_served(people: ThreadPoolExecutor) -> None:
    memory = budget(100)
    first, second = ask(Caller(memory, PATIENT), 60), ask(Caller(memory, PATIENT), 40)
    waiting: list[Future[Caller]] = []
    for more in (50, 10, 30):  # the last two would fit earlier, and still do not overtake
        waiting.append(people.submit(ask, Caller(memory, PATIENT), more))
        wait_until(lambda: memory.waiting == len(waiting), "one more waits")
    second.close()
    assert (memory.waiting, memory.bytes_held) == (3, 60)
    first.close()
    found = [future.result(PATIENT) for future in waiting]
    assert memory.bytes_held == sum(caller.bytes_held for caller in found) == 90
    for caller in found:
        caller.close()
    assert (memory.waiting, memory.bytes_held) == (0, 0)


def test_a_question_that_needs_more_than_there_is_works_alone(people: ThreadPoolExecutor) -> None:
    memory = budget(100)
    small = ask(Caller(memory, PATIENT), 1)
    huge = people.submit(ask, Caller(memory, PATIENT), 1000)
    wait_until(lambda: memory.waiting == 1, "it waits")
    small.close()
    assert huge.result(PATIENT).bytes_held == 1000
    other = people.submit(ask, Caller(memory, PATIENT), 1)
    wait_until(lambda: memory.waiting == 1, "the other waits")
    huge.result().close()
    other.result(PATIENT).close()


def test_calls_that_all_hold_something_and_need_more_do_not_wait_for_each_other(people: ThreadPoolExecutor) -> None:
    memory = budget(100)
    holders = [ask(Caller(memory, PATIENT), 50) for _ in range(2)]
    new = people.submit(ask, Caller(memory, PATIENT), 10)
    wait_until(lambda: memory.waiting == 1, "the new one waits")
    grown = [people.submit(ask, holder, 40) for holder in holders]
    wait_until(lambda: any(future.done() for future in grown), "one of them goes on")
    assert sorted(future.done() for future in grown) == [False, True]
    next(holder for holder, future in zip(holders, grown, strict=True) if future.done()).close()
    for future in grown:
        future.result(PATIENT).close()
    new.result(PATIENT).close()
    assert memory.bytes_held == 0


def test_only_so_many_wait_and_only_so_long(people: ThreadPoolExecutor) -> None:
    memory = budget(10, waiting_max=1)
    holder = ask(Caller(memory, PATIENT), 10)
    at_turn = people.submit(ask, Caller(memory, PATIENT), 10)
    wait_until(lambda: memory.waiting == 1, "the first waits for room")
    behind = people.submit(ask, Caller(memory, PATIENT), 10)
    wait_until(lambda: memory.waiting == 2, "the second waits for his turn")
    with pytest.raises(QueryBusy, match=f"ask again in {RETRY_SECONDS} s"):
        ask(Caller(memory, PATIENT), 1)
    holder.close()
    at_turn.result(PATIENT).close()
    behind.result(PATIENT).close()
    impatient = budget(10, wait_seconds=0)
    with ask(Caller(impatient, PATIENT), 10), pytest.raises(QueryBusy):
        ask(Caller(impatient, PATIENT), 1)
    assert (impatient.waiting, impatient.bytes_held) == (0, 0)


def test_a_waiting_query_that_times_out_or_is_abandoned_leaves_the_queue(people: ThreadPoolExecutor) -> None:
    memory = budget(10)
    holder = ask(Caller(memory, PATIENT), 10)
    gone = threading.Event()
    leaving = people.submit(ask, Caller(memory, PATIENT, gone.is_set), 1)
    wait_until(lambda: memory.waiting == 1, "he waits")
    late = people.submit(ask, Caller(memory, 0.01), 1)
    assert isinstance(late.exception(PATIENT), QueryTimedOut)
    gone.set()
    assert isinstance(leaving.exception(PATIENT), QueryAbandoned)
    assert memory.waiting == 0
    holder.close()
    with pytest.raises(QueryTimedOut):
        holder.check()
    ask(Caller(memory, PATIENT), 10).close()


def test_what_is_not_needed_any_more_goes_to_others_and_forgotten_askers_give_all_back() -> None:
    memory = budget(100)
    caller = ask(Caller(memory, PATIENT), 80)
    caller.keep(90)
    assert memory.bytes_held == 80, "nobody gets more by keeping"
    caller.keep(30)
    other = ask(Caller(memory, PATIENT), 70)
    assert memory.bytes_held == 100
    del caller, other
    assert memory.bytes_held == 0
