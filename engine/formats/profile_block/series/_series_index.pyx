"""The compiled codec of series indexes; see ``engine.formats.profile_block.series.series_index``."""

from libc.stdint cimport uint8_t, uint32_t

from engine.core._byte_buffers cimport Buffer, buffer_free, put_bytes
from engine.formats.profile_block.series._series_arrays cimport LabelItem, SeriesItem
from engine.formats.profile_block.series._series_reader cimport SeriesTable, read_series_index
from engine.formats.profile_block.series._series_writer cimport write_series_index
from engine.formats.profile_block.symbols._symbol_arrays cimport StringItem

from engine.formats.profile_block.model import IndexedSeries


def decode_series_index(bytes data):
    """Return the series in the order of the list of all series. Raises BadObject."""
    cdef SeriesTable table = read_series_index(data)
    cdef size_t index
    return [series_object(&table.items()[index], table.labels_of(&table.items()[index])) for index in range(table.count())]


cdef object series_object(const SeriesItem* item, const LabelItem* labels):
    """Return a series as a Python object."""
    cdef uint32_t index
    pairs = [
        (
            (<const char*>labels[index].name.data)[:labels[index].name.size],
            (<const char*>labels[index].value.data)[:labels[index].value.size],
        )
        for index in range(item.label_count)
    ]
    return IndexedSeries(item.fingerprint, tuple(pairs), item.min_time_ns, item.max_time_ns, item.position)


cdef inline StringItem _string(bytes text) noexcept:
    cdef StringItem item
    item.data = <const uint8_t*><char*>text
    item.size = <uint32_t>len(text)
    return item


def encode_series_index(series):
    """Return the index of the series in this order; ``position`` is stored as SeriesIndex."""
    cdef Buffer out = Buffer(NULL, 0, 0)
    cdef Buffer items = Buffer(NULL, 0, 0)
    cdef Buffer labels = Buffer(NULL, 0, 0)
    cdef SeriesItem item
    cdef LabelItem label
    entries = list(series)      # keeps alive the label bytes that the arrays point into
    try:
        for entry in entries:
            item.fingerprint, item.min_time_ns, item.max_time_ns = entry.fingerprint, entry.min_time_ns, entry.max_time_ns
            item.position, item.ref = entry.position, 0
            item.first_label = <uint32_t>(labels.size // sizeof(LabelItem))
            item.label_count = <uint32_t>len(entry.labels)
            put_bytes(&items, &item, sizeof(SeriesItem))
            for name, value in entry.labels:
                label.name, label.value = _string(name), _string(value)
                put_bytes(&labels, &label, sizeof(LabelItem))
        with nogil:
            write_series_index(&out, <SeriesItem*>items.data, items.size // sizeof(SeriesItem), <LabelItem*>labels.data)
        return (<char*>out.data)[:out.size]
    finally:
        buffer_free(&out)
        buffer_free(&items)
        buffer_free(&labels)
