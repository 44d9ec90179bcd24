"""One call of a viewer: whose data, which range, within which limits; what its questions took and are without.

Everything that can be wrong with a call ends as a ConnectError here; each has one of Connect's codes and, as a reason,
our own. A damaged block leaves an answer partial, which a header says.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self, TypeVar

from django.conf import settings
from django.db import DatabaseError
from django.http import HttpRequest

from engine.core.errors import LimitExceeded
from engine.formats.profile_block.model import Labels
from engine.formats.profile_block.selectors import InvalidSelector, Matcher, parse_selector
from engine.query.admission import Asker
from engine.query.errors import InvalidQuestion, QueryAbandoned, QueryBusy, QueryTimedOut, QueryTooLarge
from engine.query.flame.pprof_tree import location_table
from engine.query.flame.tree import FlameTree
from engine.query.memory import NODE_BYTES, SHOWN_NODE_BYTES
from engine.query.model import CONDITIONS_MAX, PHASES, QueryReport, Question
from engine.query.select_points import Grid, PointSeries
from engine.storage.model import StorageError
from webadmin.base.access.request_rates import seconds_to_wait
from webadmin.base.connect import ConnectError
from webadmin.base.not_taken import NotTaken
from webadmin.base.senders import Reader, Senders
from webadmin.lanes.profiles.errors import IndexMoved, InvalidIndexQuery
from webadmin.query.questions import (
    Answer,
    ask_label_names,
    ask_label_values,
    ask_points,
    ask_profile_types,
    ask_series,
    ask_stacks,
    query_engine,
    query_limits,
)
from webadmin.query.viewers.presence import has_left
from webadmin.query.viewers.time_ranges import RangeLimits, TimeRange, checked_range

OBJECTS_HEADER = "Lithify-Objects-Opened"
BYTES_HEADER = "Lithify-Bytes-Read"
MILLISECONDS_HEADER = "Lithify-Milliseconds"
PARTIAL_HEADER = "Lithify-Partial"
"""How many datasets an answer is without, and why the first one; not there if it is whole."""
SAID_MAX = 300

Result = TypeVar("Result")

log = logging.getLogger(__name__)

_readers = Senders()


def identify_reader(request: HttpRequest) -> Reader:
    """Return who asks; ConnectError if nobody may know."""
    with said_to_viewers():
        reader = _readers.identify_reader(request)
    wait = seconds_to_wait(reader.actor.removeprefix("credential:"))
    if wait:
        message = "the credential sends more requests than it may"
        raise ConnectError("resource_exhausted", message, reason="rate_limited", retry_after_s=wait)
    return reader


@contextmanager
def said_to_viewers() -> Iterator[None]:
    """Turn what may go wrong with a call into the ConnectError that says so."""
    try:
        yield
    except NotTaken as error:
        raise ConnectError(error.code, error.message, reason=error.reason) from error
    except (InvalidQuestion, InvalidSelector, InvalidIndexQuery) as error:
        raise ConnectError("invalid_argument", str(error), reason=error.code) from error
    except (QueryTooLarge, LimitExceeded) as error:
        raise ConnectError("resource_exhausted", str(error), reason=error.code) from error
    except QueryTimedOut as error:
        raise ConnectError("deadline_exceeded", str(error), reason=error.code) from error
    except QueryBusy as error:
        raise ConnectError("unavailable", str(error), reason=error.code, retry_after_s=error.seconds) from error
    except QueryAbandoned as error:
        log.info("question_abandoned")
        raise ConnectError("canceled", str(error), reason=error.code) from error
    except IndexMoved as error:
        raise ConnectError("unavailable", str(error), reason=error.code) from error
    except (DatabaseError, StorageError) as error:
        message = "the index or the object store is away; ask again"
        raise ConnectError("unavailable", message, reason="store_away") from error


class Viewing:
    """Asks for the tenants of one call, and adds up what the answers took.

    A question that is None, of a range too far back, is answered with nothing. All questions of a call have one
    deadline, the client's (``deadline``, on ``time.monotonic``'s clock) or ours, and end when the client has left. As a
    context manager it holds the memory of its answers until they are written.
    """

    def __init__(self, reader: Reader, request: HttpRequest | None = None, deadline: float | None = None) -> None:
        self.now_ms = time.time_ns() // 1_000_000
        self._limits = query_limits()
        seconds = self._limits.seconds
        if deadline is not None:
            seconds = min(seconds, max(0.0, deadline - time.monotonic()))
        self._asker = Asker(query_engine().memory, seconds, lambda: request is not None and has_left(request))
        self._tenants = reader.tenants
        self._kept_bytes = 0
        self._reports: list[QueryReport] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_class: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._asker.close()

    def range_of(self, start_ms: int, end_ms: int) -> TimeRange | None:
        """Return what of a range is looked at. Raises InvalidQuestion."""
        limits = RangeLimits(settings.QUERY_LENGTH_SECONDS, settings.QUERY_LOOKBACK_SECONDS)
        return checked_range(start_ms, end_ms, limits, self.now_ms)

    def question(self, start_ms: int, end_ms: int, matchers: Iterable[Matcher]) -> Question | None:
        """Return the question about a range. Raises InvalidQuestion."""
        found = self.range_of(start_ms, end_ms)
        return found and Question(start_ms=found.start_ms, end_ms=found.end_ms, matchers=tuple(matchers))

    def tree(self, question: Question | None) -> FlameTree:
        """Return the merged stacks, with functions as frames."""
        if question is None:
            return FlameTree()
        return self._keep_tree(ask_stacks(self._tenants, question, FlameTree, limits=self._limits, asker=self._asker))

    def places(self, question: Question | None) -> FlameTree:
        """Return the merged stacks, with whole locations as frames."""
        if question is None:
            return FlameTree()
        return self._keep_tree(
            ask_stacks(
                self._tenants,
                question,
                FlameTree,
                table_of=location_table,
                limits=self._limits,
                asker=self._asker,
            )
        )

    def points(self, question: Question | None, grid: Grid) -> list[PointSeries]:
        """Return the values over time."""
        grid.check(self._limits.points)
        if question is None:
            return []
        return self._keep(ask_points(self._tenants, question, grid, limits=self._limits, asker=self._asker))

    def will_show(self, nodes: int, *trees: FlameTree) -> None:
        """Wait for the memory that drawing so many nodes of trees takes (below 1: all). Raises as a question does."""
        there = sum(tree.node_count for tree in trees)
        self._asker.hold(self._kept_bytes + SHOWN_NODE_BYTES * (min(nodes, there) if nodes > 0 else there))

    def series(self, question: Question | None, names: Sequence[str]) -> list[Labels]:
        """Return the label sets, restricted to ``names`` (all if empty)."""
        return self._list(
            question, lambda asked: ask_series(self._tenants, asked, names, limits=self._limits, asker=self._asker)
        )

    def label_names(self, question: Question | None) -> list[str]:
        """Return the names of labels."""
        return self._list(
            question, lambda asked: ask_label_names(self._tenants, asked, limits=self._limits, asker=self._asker)
        )

    def label_values(self, question: Question | None, name: str) -> list[str]:
        """Return the values of a label."""
        return self._list(
            question, lambda asked: ask_label_values(self._tenants, asked, name, limits=self._limits, asker=self._asker)
        )

    def profile_types(self, question: Question | None) -> list[str]:
        """Return the ids of profile types."""
        return self._list(
            question, lambda asked: ask_profile_types(self._tenants, asked, limits=self._limits, asker=self._asker)
        )

    @property
    def reports(self) -> list[QueryReport]:
        """What the answers so far took, and what they are without, one after the other."""
        return list(self._reports)

    def headers(self) -> dict[str, str]:
        """Return what the answers took, and what they are without, as headers."""
        costs = [report.cost for report in self._reports]
        damage = [one for report in self._reports for one in report.damage]
        phases = {name: sum(cost.phases[name] for cost in costs) for name in PHASES}
        found = {
            OBJECTS_HEADER: str(sum(cost.objects_opened for cost in costs)),
            BYTES_HEADER: str(sum(cost.bytes_read for cost in costs)),
            MILLISECONDS_HEADER: f"{1000 * sum(cost.seconds for cost in costs):.1f}",
            "Server-Timing": ", ".join(f"{name};dur={1000 * seconds:.1f}" for name, seconds in phases.items()),
        }
        if damage:
            said = f"{len(damage)} not read: {damage[0]}".encode("ascii", "backslashreplace").decode()
            found[PARTIAL_HEADER] = "".join(letter if letter.isprintable() else " " for letter in said)[:SAID_MAX]
        return found

    def _list(self, question: Question | None, ask: Callable[[Question], Answer[list[Result]]]) -> list[Result]:
        return [] if question is None else self._keep(ask(question))

    def _keep_tree(self, answer: Answer[FlameTree]) -> FlameTree:
        """What was needed to make a tree is more than what it takes."""
        self._kept_bytes += answer.result.node_count * NODE_BYTES
        self._asker.keep(max(self._kept_bytes, 1))
        return self._keep(answer)

    def _keep(self, answer: Answer[Result]) -> Result:
        self._reports.append(answer.report)
        return answer.result


def parsed_selector(text: str) -> tuple[Matcher, ...]:
    """Return the conditions of a selector. Raises InvalidSelector, also for an empty text: everything is ``{}``."""
    if not text.strip():
        raise InvalidSelector(-1, "the selector is empty: write {} for everything")
    return parse_selector(text)


def parsed_selectors(texts: Iterable[str]) -> list[Matcher]:
    """Return the conditions of several selectors, which must all hold. Raises InvalidSelector."""
    found: list[Matcher] = []
    for text in texts:
        found += parsed_selector(text)
        if len(found) > CONDITIONS_MAX:
            raise InvalidSelector(-1, f"the selectors have more than {CONDITIONS_MAX} matchers together")
    return found
