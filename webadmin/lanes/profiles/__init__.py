"""The transactional metadata index: blocks, their datasets, lineage and tombstones."""
