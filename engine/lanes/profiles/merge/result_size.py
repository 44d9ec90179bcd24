"""Keep result blocks below a size: assign datasets to several blocks, and split large datasets by series.

The size of a merged dataset is known only after its merge, because equal symbols of its sources are stored once. A
dataset is merged whole and, if it is too large, merged again in a number of parts given by its size; parts are checked
in the same way. A part with one series is not split further: only such a block may exceed the cap. The only I/O is
reading the series of the sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.core.errors import BadObject
from engine.formats.profile_block.merge_model import SERIES_INDEX, DatasetSource, MergedDataset, Selection
from engine.formats.profile_block.model import Labels
from engine.formats.profile_block.series.series_index import decode_series_index

BLOCK_BYTES = 512
"""Overhead of a block: metadata fields, footer and the empty index."""
DATASET_BYTES = 256
"""Overhead of a dataset: its fields in the metadata."""
STRING_BYTES = 8
"""Overhead of a string in the metadata or of a reference to one."""

SeriesKey = tuple[tuple[tuple[bytes, bytes], ...], int]


def room_for_datasets(bytes_max: int, strings: Iterable[str]) -> int:
    """Return the bytes for datasets in a block of ``bytes_max`` whose metadata has these strings; 0: unlimited."""
    if bytes_max == 0:
        return 0
    taken = BLOCK_BYTES + sum(STRING_BYTES + len(text.encode()) for text in strings)
    return max(bytes_max - taken, bytes_max // 2)


def bytes_in_block(part: MergedDataset, labels: Sequence[Labels]) -> int:
    """Return the bytes that a merged dataset takes in a block, with its share of the dataset index."""
    references = sum(1 + 2 * len(label_set) for label_set in labels)
    index = part.sections[SERIES_INDEX].size
    return part.size + index + DATASET_BYTES + STRING_BYTES * references


def distribute_parts(sizes: Sequence[int], room: int) -> list[list[int]]:
    """Group parts, given by size and in order, into blocks; return their positions. ``room`` 0: one block."""
    blocks: list[list[int]] = [[]]
    used = 0
    for position, size in enumerate(sizes):
        if room and blocks[-1] and used + size > room:
            blocks.append([])
            used = 0
        blocks[-1].append(position)
        used += size
    return blocks


def cut_by_size(sources: Sequence[DatasetSource], selection: Selection, count: int) -> list[list[set[int]]]:
    """Split the selected series, in label order, into up to ``count`` selections."""
    chosen = [
        {number: key for number, key in _series(source).items() if selection is None or number in selection[place]}
        for place, source in enumerate(sources)
    ]
    keys = sorted({key for numbers in chosen for key in numbers.values()})
    count = max(1, min(count, len(keys)))
    part_of = {key: position * count // len(keys) for position, key in enumerate(keys)}
    parts: list[list[set[int]]] = [[set() for _ in sources] for _ in range(count)]
    for place, numbers in enumerate(chosen):
        for number, key in numbers.items():
            parts[part_of[key]][place].add(number)
    return parts


def _series(source: DatasetSource) -> dict[int, SeriesKey]:
    try:
        entries = decode_series_index(source.read_section(SERIES_INDEX))
    except BadObject as error:
        raise error.in_object(source.object_name) from error
    return {entry.position: (entry.labels, entry.fingerprint) for entry in entries}
