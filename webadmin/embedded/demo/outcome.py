"""Results of the demonstration: queries before and after compaction, and objects or jobs left behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from webadmin.embedded.demo.figures import LiveBlock, differences
from webadmin.embedded.demo.question import Answer, Question


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginalResult:
    """A query and its result on the original objects."""

    question: Question
    answer: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """State before any compaction; ``sdk`` is the query of the SDK's program, None if it did not run."""

    blocks: Sequence[LiveBlock]
    asked: OriginalResult
    sdk: OriginalResult | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A query with its results before and after compaction."""

    question: Question
    before: Answer
    after: Answer

    @property
    def wrong(self) -> list[int]:
        """Return the positions at which the two results differ."""
        return differences(self.before.functions, self.after.functions)

    @property
    def is_equal(self) -> bool:
        """Return whether functions and total are equal."""
        return not self.wrong and self.before.total_value == self.after.total_value


@dataclass(slots=True, kw_only=True)
class Outcome:
    """Results to compare; ``flame_path`` is the path of the flame graph of the first query."""

    comparisons: Sequence[Comparison]
    flame_path: str
    parked_jobs: int
    bad_objects: int
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def are_equal(self) -> bool:
        """Return whether every query has equal results."""
        return all(one.is_equal for one in self.comparisons)

    @property
    def is_good(self) -> bool:
        """Return whether all results are equal and no job or object was left behind."""
        return self.are_equal and self.parked_jobs == 0 and self.bad_objects == 0
