"""The write side of the index, one module per use case."""

from webadmin.index.services.add_blocks import AddOutcome, add_blocks
from webadmin.index.services.delete_objects import DeletionOutcome, delete_tombstoned_objects
from webadmin.index.services.import_blocks import ImportOutcome, import_blocks

__all__ = [
    "AddOutcome",
    "DeletionOutcome",
    "ImportOutcome",
    "add_blocks",
    "delete_tombstoned_objects",
    "import_blocks",
]
