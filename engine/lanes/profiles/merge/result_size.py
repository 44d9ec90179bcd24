"""Keeps result blocks below a size: datasets are dealt to several blocks, and one that is too large is cut by series.

How large a merged dataset is shows only when it is merged, for equal symbols of its sources become one. So a dataset is
merged whole, and if that is too much merged again in as many parts as its size asks for; each part is looked at in the
same way. A part of one series is not cut any further, which is the one case of a block above its cap. Pure but for
reading the series of the sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.core.errors import BadObject
from engine.formats.profile_block.merge_model import SERIES_INDEX, DatasetSource, MergedDataset, Selection
from engine.formats.profile_block.model import Labels
from engine.formats.profile_block.series.series_index import decode_series_index

BLOCK_BYTES = 512
"""Of a block beside its datasets and strings: fields of the metadata, footer, the empty index."""
DATASET_BYTES = 256
"""Of a dataset beside its sections: its fields in the metadata."""
STRING_BYTES = 8
"""Of a string in the metadata or of a reference to one, beside its characters."""

SeriesKey = tuple[tuple[tuple[bytes, bytes], ...], int]


def room_for_datasets(bytes_max: int, strings: Iterable[str]) -> int:
    """Return what datasets may take of a block of ``bytes_max`` whose metadata has these strings; 0: any size."""
    if bytes_max == 0:
        return 0
    taken = BLOCK_BYTES + sum(STRING_BYTES + len(text.encode()) for text in strings)
    return max(bytes_max - taken, bytes_max // 2)


def bytes_in_block(part: MergedDataset, labels: Sequence[Labels]) -> int:
    """Return how many bytes of a block a merged dataset takes, its share of the dataset index among them."""
    references = sum(1 + 2 * len(label_set) for label_set in labels)
    index = part.sections[SERIES_INDEX].size
    return part.size + index + DATASET_BYTES + STRING_BYTES * references


def deal(sizes: Sequence[int], room: int) -> list[list[int]]:
    """Return which of the parts of these sizes (by position, in order) go into one block each; room 0: all into one."""
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
    """Return up to ``count`` selections that share out the selected series in label order; one if it is one series."""
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
