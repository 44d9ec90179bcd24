"""What the selected rows' stacks used, for flame graphs: sums per stack, dataset by dataset, added to a tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from engine.profiles.errors import BadObject, BadReference
from engine.profiles.model import IndexedSeries
from engine.profiles.query.dataset_reader import OpenDataset
from engine.profiles.query.duplicates import Duplicates
from engine.profiles.query.execution import QueryRun
from engine.profiles.query.frames import FrameTree
from engine.profiles.query.model import QueryBlock, Question, profile_datasets
from engine.profiles.query.rows import RowReader, Samples
from engine.profiles.query.selectors import Matcher, MatchOperator
from engine.storage.model import StorageError

NOT_SAMPLED = Matcher("__sampled__", MatchOperator.NOT_EQUAL, "true")
"""Series that were thinned out on their way in would weigh too little in a tree."""


class StackTarget(Protocol):
    """Takes stacks: a tree of functions, or anything else that adds them up."""

    def add_stacks(
        self,
        strings: Sequence[bytes],
        nodes_parent: npt.NDArray[np.int32],
        nodes_function: npt.NDArray[np.int32],
        node: npt.NDArray[np.int32],
        value: npt.NDArray[np.int64],
    ) -> object:
        """Add values to nodes of a tree of functions; node 0 is its root, whose parent is -1."""


@dataclass(frozen=True, slots=True)
class StackValues:
    """Values by stack in one partition of one dataset; every node is there once."""

    tree: FrameTree
    nodes: npt.NDArray[np.int32]
    values: npt.NDArray[np.int64]


def select_stacks(run: QueryRun, blocks: Sequence[QueryBlock], question: Question, target: StackTarget) -> None:
    """Add the stacks of all rows that answer to ``target``. Raises QueryTooLarge, QueryTimedOut, InvalidQuestion."""
    for found in stack_values(run, blocks, question):
        with run.phase("merge"):
            tree = found.tree
            target.add_stacks(tree.strings, tree.parents, tree.functions, found.nodes, found.values)


def stack_values(run: QueryRun, blocks: Sequence[QueryBlock], question: Question) -> Iterator[StackValues]:
    """Yield what the stacks of all rows that answer used, by dataset, in no order. Raises as ``select_stacks``."""
    asked = replace(question, matchers=(*question.matchers, NOT_SAMPLED))
    datasets = (dataset for block in blocks for dataset in profile_datasets(block) if asked.may_be_in(dataset))
    duplicates = Duplicates(datasets, run.limits.rows)

    def read(dataset: OpenDataset, series: list[IndexedSeries]) -> list[StackValues]:
        reader = RowReader(run, dataset, asked, series, duplicates)
        if not reader.series:
            return []
        sums = _Sums(dataset)
        try:
            for rows in reader.rows(sums.verify):
                with run.phase("rows"):
                    sums.add(rows.samples)
        except (BadObject, StorageError) as error:
            run.damaged(dataset, error)  # what was read so far is good, and counts
        return sums.values()

    for results in run.over(blocks, asked, read):
        yield from results


class _Sums:
    """Sums values by stack in one dataset. Symbols are read when the first stack is met."""

    def __init__(self, dataset: OpenDataset) -> None:
        self._dataset = dataset
        self._trees: dict[int, FrameTree] = {}
        self._sums: dict[int, npt.NDArray[np.int64]] = {}

    def verify(self, samples: Sequence[Samples]) -> None:
        """Raise a BadObject for stacks that the dataset's symbols do not have."""
        self._trees = self._trees or self._dataset.symbols()
        for part in samples:
            if part.partition not in self._trees:
                raise BadReference("profiles", -1, f"no symbols for partition {part.partition}")
            self._trees[part.partition].places(part.stack_ids)

    def add(self, samples: Sequence[Samples]) -> None:
        """Add what was verified."""
        for part in samples:
            tree = self._trees[part.partition]
            if part.partition not in self._sums:
                self._sums[part.partition] = np.zeros(len(tree.leaves), np.int64)
            np.add.at(self._sums[part.partition], tree.places(part.stack_ids), part.values)

    def values(self) -> list[StackValues]:
        found = []
        for partition, sums in self._sums.items():
            places = np.flatnonzero(sums)
            found.append(StackValues(self._trees[partition], self._trees[partition].leaves[places], sums[places]))
        return found
