"""List series, label names, label values and profile types: exactly those with a row in the range.

The series index holds the first and last time of each series. If one of them is in the range, the series has a row
there. Rows are read only for series that span the whole range or that delete requests partly remove.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from engine.formats.profile_block.model import IndexedSeries, Labels
from engine.query.dataset_reader import OpenDataset
from engine.query.errors import InvalidQuestion, QueryTooLarge
from engine.query.execution import QueryRun
from engine.query.memory import label_bytes_max, labels_bytes
from engine.query.model import PROFILE_TYPE, QueryBlock, Question
from engine.query.rows import RowReader

Projection = Callable[[IndexedSeries], Iterable[Labels]]


def select_series(
    run: QueryRun, blocks: Sequence[QueryBlock], question: Question, names: Sequence[str] = ()
) -> list[Labels]:
    """Return the distinct label sets of the series with matching rows, restricted to ``names`` (all if empty).

    Labels are sorted by name, sets by their labels; a series with none of the names gives an empty set. Raises
    QueryTooLarge, QueryTimedOut, InvalidQuestion.
    """
    wanted = frozenset(name.encode() for name in names)

    def project(series: IndexedSeries) -> Iterable[Labels]:
        kept = sorted(label for label in series.labels if not wanted or label[0] in wanted)
        yield tuple((name.decode(errors="replace"), value.decode(errors="replace")) for name, value in kept)

    return sorted(_distinct(run, blocks, question, project))


def label_names(run: QueryRun, blocks: Sequence[QueryBlock], question: Question) -> list[str]:
    """Return the label names of the series with matching rows, sorted by bytes. Raises as ``select_series``."""

    def project(series: IndexedSeries) -> Iterable[Labels]:
        return (((name.decode(errors="replace"), ""),) for name, _ in series.labels)

    return _by_bytes(labels[0][0] for labels in _distinct(run, blocks, question, project))


def label_values(run: QueryRun, blocks: Sequence[QueryBlock], question: Question, name: str) -> list[str]:
    """Return the values of a label, sorted by bytes. Raises as ``select_series``."""
    if not name:
        raise InvalidQuestion("name is required")
    wanted = name.encode()

    def project(series: IndexedSeries) -> Iterable[Labels]:
        return (((name, value.decode(errors="replace")),) for own, value in series.labels if own == wanted)

    return _by_bytes(labels[0][1] for labels in _distinct(run, blocks, question, project))


def profile_types(run: QueryRun, blocks: Sequence[QueryBlock], question: Question) -> list[str]:
    """Return the ids of the profile types, sorted. Raises as ``select_series``."""
    return label_values(run, blocks, question, PROFILE_TYPE)


def _by_bytes(texts: Iterable[str]) -> list[str]:
    return sorted(texts, key=lambda text: text.encode(errors="surrogatepass"))


def _distinct(run: QueryRun, blocks: Sequence[QueryBlock], question: Question, project: Projection) -> set[Labels]:
    def read(dataset: OpenDataset, series: list[IndexedSeries]) -> set[Labels]:
        reader = RowReader(run, dataset, question, series)
        doubtful = {entry.position for entry in reader.series if not (reader.is_whole and _is_sure(entry, question))}
        with_rows = reader.series_with_rows(doubtful)
        return {
            labels
            for entry in reader.series
            if entry.position not in doubtful or entry.position in with_rows
            for labels in project(entry)
        }

    found: set[Labels] = set()
    size = 0
    for result in run.over(blocks, question, read):
        with run.phase("merge"):
            size += sum(map(labels_bytes, result - found))
            found |= result
            if size > label_bytes_max(run.limits):
                raise QueryTooLarge("bytes of labels", label_bytes_max(run.limits))
            if len(found) > run.limits.series:
                raise QueryTooLarge("series", run.limits.series)
    return found


def _is_sure(series: IndexedSeries, question: Question) -> bool:
    """Return whether the first or the last row of a series is in the range."""
    return any(question.start_ns <= time <= question.end_ns for time in (series.min_time_ns, series.max_time_ns))
