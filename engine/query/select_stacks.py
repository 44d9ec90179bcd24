"""Sum values per stack over the selected rows, dataset by dataset, for flame graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from engine.core.errors import BadObject, BadReference, LimitExceeded
from engine.formats.profile_block.model import IndexedSeries
from engine.formats.profile_block.selectors import Matcher, MatchOperator
from engine.query.dataset_reader import OpenDataset, TableOf
from engine.query.duplicates import Duplicates
from engine.query.errors import QueryTooLarge
from engine.query.execution import QueryRun
from engine.query.flame.stack_table import StackTable, stack_table
from engine.query.flame.tree import NODES_MAX, FlameTree
from engine.query.memory import nodes_max, seen_rows_max
from engine.query.model import QueryBlock, Question, profile_datasets
from engine.query.rows import RowReader, Samples
from engine.storage.model import StorageError

NOT_SAMPLED = Matcher("__sampled__", MatchOperator.NOT_EQUAL, "true")
"""Excludes series that were sampled at ingestion, whose values would be too small in a tree."""


VALUE_MAX = (1 << 63) - 1


class StackTarget(Protocol):
    """A target that sums stacks, such as ``FlameTree``."""

    def add_stacks(self, stacks: StackTable, nodes: NDArray[np.int32], values: NDArray[np.int64]) -> object:
        """Add one dataset's values: the stack that ends in ``nodes[i]`` has ``values[i]``."""


@dataclass(frozen=True, slots=True)
class StackValues:
    """Values by stack in one partition of one dataset; nodes are unique."""

    dataset: OpenDataset
    stacks: StackTable
    nodes: NDArray[np.int32]
    values: NDArray[np.int64]


def select_stacks(
    run: QueryRun,
    blocks: Sequence[QueryBlock],
    question: Question,
    target: StackTarget,
    *,
    table_of: TableOf = stack_table,
) -> None:
    """Add the stacks of all matching rows to ``target``; ``table_of`` converts symbols to frames.

    Raises QueryTooLarge, QueryTimedOut, InvalidQuestion.
    """
    for found in stack_values(run, blocks, question, table_of):
        with run.phase("merge"):
            try:
                target.add_stacks(found.stacks, found.nodes, found.values)
            except BadObject as error:  # the call added nothing
                if isinstance(error, LimitExceeded) and error.section == "symbols":
                    raise QueryTooLarge("nodes in a tree", NODES_MAX) from error
                run.damaged(found.dataset, error)
            if isinstance(target, FlameTree) and target.node_count > nodes_max(run.limits):
                raise QueryTooLarge("nodes in a tree", nodes_max(run.limits))


def stack_values(
    run: QueryRun, blocks: Sequence[QueryBlock], question: Question, table_of: TableOf = stack_table
) -> Iterator[StackValues]:
    """Yield the values by stack of all matching rows, by dataset, unordered. Raises as ``select_stacks``."""
    narrowed = replace(question, matchers=(*question.matchers, NOT_SAMPLED))
    datasets = (dataset for block in blocks for dataset in profile_datasets(block) if narrowed.may_be_in(dataset))
    duplicates = Duplicates(datasets, seen_rows_max(run.limits))

    def read(dataset: OpenDataset, series: list[IndexedSeries]) -> list[StackValues]:
        reader = RowReader(run, dataset, narrowed, series, duplicates)
        if not reader.series:
            return []
        sums = _Sums(dataset, table_of)
        try:
            for rows in reader.rows(sums.verify):
                with run.phase("rows"):
                    sums.add(rows.samples)
        except (BadObject, StorageError) as error:
            run.damaged(dataset, error)  # rows read before count
        return sums.values()

    for results in run.over(blocks, narrowed, read):
        yield from results


class _Sums:
    """Sums values by stack in one dataset. Symbols are read with the first stack."""

    def __init__(self, dataset: OpenDataset, table_of: TableOf) -> None:
        self._dataset = dataset
        self._table_of = table_of
        self._tables: dict[int, StackTable] = {}
        self._sums: dict[int, NDArray[np.int64]] = {}
        self._total = 0

    def verify(self, samples: Sequence[Samples]) -> None:
        """Raise BadObject for stacks that are not in the dataset's symbols."""
        self._tables = self._tables or self._dataset.symbols(self._table_of)
        for part in samples:
            if part.partition not in self._tables:
                raise BadReference("profiles", -1, f"no symbols for partition {part.partition}")
            self._tables[part.partition].nodes_of(part.stack_ids)

    def add(self, samples: Sequence[Samples]) -> None:
        """Add verified samples. Raises LimitExceeded if the sums reach 2^63."""
        for part in samples:
            self._total += (int((part.values >> 32).sum()) << 32) + int((part.values & 0xFFFFFFFF).sum())
            if self._total > VALUE_MAX:
                raise LimitExceeded("profiles", -1, "the values add up to more than 2^63 - 1")
            table = self._tables[part.partition]
            if part.partition not in self._sums:
                self._sums[part.partition] = np.zeros(len(table.parents), np.int64)
            np.add.at(self._sums[part.partition], table.nodes_of(part.stack_ids), part.values)

    def values(self) -> list[StackValues]:
        found = []
        for partition, sums in self._sums.items():
            nodes = np.flatnonzero(sums)
            found.append(StackValues(self._dataset, self._tables[partition], nodes.astype(np.int32), sums[nodes]))
        return found
