"""One request of a viewer: tenants, range, limits, and the reports of its queries.

Every error of a request becomes a ConnectError here, with a code of Connect and a reason of ours. A damaged block makes
the result partial, which a header reports.
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
from engine.query.admission import Caller
from engine.query.errors import InvalidQuestion, QueryAbandoned, QueryBusy, QueryTimedOut, QueryTooLarge
from engine.query.flame.pprof_tree import location_table
from engine.query.flame.tree import FlameTree
from engine.query.memory import NODE_BYTES, SHOWN_NODE_BYTES
from engine.query.model import CONDITIONS_MAX, PHASES, QueryReport, Question
from engine.query.select_points import Grid, PointSeries
from engine.storage.model import StorageError
from webadmin.base.access.request_rates import seconds_to_wait
from webadmin.base.connect import ConnectError
from webadmin.base.push_rejected import PushRejected
from webadmin.base.senders import Reader, Senders
from webadmin.lanes.profiles.errors import IndexMoved, InvalidIndexQuery
from webadmin.query.questions import (
    Answer,
    query_engine,
    query_label_names,
    query_label_values,
    query_limits,
    query_points,
    query_profile_types,
    query_series,
    query_stacks,
)
from webadmin.query.viewers.presence import has_left
from webadmin.query.viewers.time_ranges import RangeLimits, TimeRange, checked_range

OBJECTS_HEADER = "Lithify-Objects-Opened"
BYTES_HEADER = "Lithify-Bytes-Read"
MILLISECONDS_HEADER = "Lithify-Milliseconds"
PARTIAL_HEADER = "Lithify-Partial"
"""Number of datasets that are missing from the result, and the reason for the first; absent if it is complete."""
MESSAGE_MAX = 300

Result = TypeVar("Result")

log = logging.getLogger(__name__)

_readers = Senders()


def identify_reader(request: HttpRequest) -> Reader:
    """Return the authenticated reader. Raises ConnectError without valid credentials."""
    with viewer_errors():
        reader = _readers.identify_reader(request)
    wait = seconds_to_wait(reader.actor.removeprefix("credential:"))
    if wait:
        message = "the credential sends more requests than it may"
        raise ConnectError("resource_exhausted", message, reason="rate_limited", retry_after_s=wait)
    return reader


@contextmanager
def viewer_errors() -> Iterator[None]:
    """Turn errors of a request into ConnectError."""
    try:
        yield
    except PushRejected as error:
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
    """Run queries on the tenants of one request and sum up their cost.

    A query that is None, for a range that is too old, gives an empty result. All queries of a request share one
    deadline, the client's (``deadline``, a ``time.monotonic`` value) or the default, and are cancelled when the client
    disconnects. As a context manager it holds the memory of the results until they are written.
    """

    def __init__(self, reader: Reader, request: HttpRequest | None = None, deadline: float | None = None) -> None:
        self.now_ms = time.time_ns() // 1_000_000
        self._limits = query_limits()
        seconds = self._limits.seconds
        if deadline is not None:
            seconds = min(seconds, max(0.0, deadline - time.monotonic()))
        self._caller = Caller(query_engine().memory, seconds, lambda: request is not None and has_left(request))
        self._tenants = reader.tenants
        self._kept_bytes = 0
        self._reports: list[QueryReport] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_class: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._caller.close()

    def range_of(self, start_ms: int, end_ms: int) -> TimeRange | None:
        """Return the part of a range that is read. Raises InvalidQuestion."""
        limits = RangeLimits(settings.QUERY_LENGTH_SECONDS, settings.QUERY_LOOKBACK_SECONDS)
        return checked_range(start_ms, end_ms, limits, self.now_ms)

    def question(self, start_ms: int, end_ms: int, matchers: Iterable[Matcher]) -> Question | None:
        """Return the query for a range. Raises InvalidQuestion."""
        found = self.range_of(start_ms, end_ms)
        if found is None:
            return None
        return Question(start_ms=found.start_ms, end_ms=found.end_ms, matchers=tuple(matchers))

    def tree(self, question: Question | None) -> FlameTree:
        """Return the merged stacks with functions as frames."""
        if question is None:
            return FlameTree()
        return self._keep_tree(
            query_stacks(self._tenants, question, FlameTree, limits=self._limits, caller=self._caller)
        )

    def places(self, question: Question | None) -> FlameTree:
        """Return the merged stacks with whole locations as frames."""
        if question is None:
            return FlameTree()
        return self._keep_tree(
            query_stacks(
                self._tenants,
                question,
                FlameTree,
                table_of=location_table,
                limits=self._limits,
                caller=self._caller,
            )
        )

    def points(self, question: Question | None, grid: Grid) -> list[PointSeries]:
        """Return the values over time."""
        grid.check(self._limits.points)
        if question is None:
            return []
        return self._keep(query_points(self._tenants, question, grid, limits=self._limits, caller=self._caller))

    def will_show(self, nodes: int, *trees: FlameTree) -> None:
        """Reserve the memory for drawing this many nodes of trees (below 1: all). Raises the errors of a query."""
        there = sum(tree.node_count for tree in trees)
        self._caller.hold(self._kept_bytes + SHOWN_NODE_BYTES * (min(nodes, there) if nodes > 0 else there))

    def series(self, question: Question | None, names: Sequence[str]) -> list[Labels]:
        """Return the label sets, restricted to ``names`` (empty: no restriction)."""
        return self._list(
            question,
            lambda narrowed: query_series(self._tenants, narrowed, names, limits=self._limits, caller=self._caller),
        )

    def label_names(self, question: Question | None) -> list[str]:
        """Return the label names."""
        return self._list(
            question,
            lambda narrowed: query_label_names(self._tenants, narrowed, limits=self._limits, caller=self._caller),
        )

    def label_values(self, question: Question | None, name: str) -> list[str]:
        """Return the values of a label."""
        return self._list(
            question,
            lambda narrowed: query_label_values(
                self._tenants, narrowed, name, limits=self._limits, caller=self._caller
            ),
        )

    def profile_types(self, question: Question | None) -> list[str]:
        """Return the ids of profile types."""
        return self._list(
            question,
            lambda narrowed: query_profile_types(self._tenants, narrowed, limits=self._limits, caller=self._caller),
        )

    @property
    def reports(self) -> list[QueryReport]:
        """Return the reports of all queries so far, in sequence."""
        return list(self._reports)

    def headers(self) -> dict[str, str]:
        """Return the cost and the gaps of the results as headers."""
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
            text = f"{len(damage)} not read: {damage[0]}".encode("ascii", "backslashreplace").decode()
            found[PARTIAL_HEADER] = "".join(letter if letter.isprintable() else " " for letter in text)[:MESSAGE_MAX]
        return found

    def _list(self, question: Question | None, ask: Callable[[Question], Answer[list[Result]]]) -> list[Result]:
        return [] if question is None else self._keep(ask(question))

    def _keep_tree(self, answer: Answer[FlameTree]) -> FlameTree:
        """Reduce the reserved memory to the size of the tree; its construction needs more."""
        self._kept_bytes += answer.result.node_count * NODE_BYTES
        self._caller.keep(max(self._kept_bytes, 1))
        return self._keep(answer)

    def _keep(self, answer: Answer[Result]) -> Result:
        self._reports.append(answer.report)
        return answer.result


def parsed_selector(text: str) -> tuple[Matcher, ...]:
    """Return the matchers of a selector.

    Raises InvalidSelector, also for an empty text: the selector of everything is ``{}``.
    """
    if not text.strip():
        raise InvalidSelector(-1, "the selector is empty: write {} for everything")
    return parse_selector(text)


def parsed_selectors(texts: Iterable[str]) -> list[Matcher]:
    """Return the matchers of several selectors, all of which apply. Raises InvalidSelector."""
    found: list[Matcher] = []
    for text in texts:
        found += parsed_selector(text)
        if len(found) > CONDITIONS_MAX:
            raise InvalidSelector(-1, f"the selectors have more than {CONDITIONS_MAX} matchers together")
    return found
