"""What the demonstration found: questions with their answers before and after, and what was left behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from webadmin.embedded.demo.figures import LiveBlock, differences
from webadmin.embedded.demo.question import Answer, Question


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question and its answer from the objects as they came."""

    question: Question
    answer: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """What there was before any compaction; ``sdk`` is about the program with the SDK, None if none ran."""

    blocks: Sequence[LiveBlock]
    asked: Asked
    sdk: Asked | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A question with its answers before and after the compaction."""

    question: Question
    before: Answer
    after: Answer

    @property
    def wrong(self) -> list[int]:
        """The positions at which the two answers differ."""
        return differences(self.before.functions, self.after.functions)

    @property
    def is_equal(self) -> bool:
        """True if the functions and the sum of everything are the same."""
        return not self.wrong and self.before.total_value == self.after.total_value


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What there is to compare and to look at afterwards; ``flame_path`` is the flame graph of the first question."""

    comparisons: Sequence[Comparison]
    flame_path: str
    parked_jobs: int
    bad_objects: int
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def are_equal(self) -> bool:
        """True if every question has the same answer as before."""
        return all(one.is_equal for one in self.comparisons)

    @property
    def is_good(self) -> bool:
        """True if the answers are equal and no job or object was left behind."""
        return self.are_equal and self.parked_jobs == 0 and self.bad_objects == 0
