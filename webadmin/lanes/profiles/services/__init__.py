"""The write side of the index, one module per use case."""

from webadmin.lanes.profiles.services.add_blocks import AddOutcome, add_blocks
from webadmin.lanes.profiles.services.delete_objects import DeletionOutcome, delete_tombstoned_objects
from webadmin.lanes.profiles.services.import_blocks import ImportOutcome, import_blocks

__all__ = [
    "AddOutcome",
    "DeletionOutcome",
    "ImportOutcome",
    "add_blocks",
    "delete_tombstoned_objects",
    "import_blocks",
]
