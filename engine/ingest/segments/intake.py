"""How a segment builder takes profiles in: ``Intake`` sees one after the other, a ``DatasetBuilder`` keeps the rows.

The door to two implementations: the plain twin defines what happens, the compiled one, which gives the same bytes and
refuses the same, is used when it is built, unless ``LITHIFY_PURE=1``. A dataset builder belongs to the intake it was
made with.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

IMPLEMENTATION = "python"

if TYPE_CHECKING or os.environ.get("LITHIFY_PURE") == "1":
    from engine.ingest.segments._intake_py import DatasetBuilder, Intake
else:
    try:
        from engine.ingest.segments._dataset_rows import DatasetBuilder
        from engine.ingest.segments._intake import Intake

        IMPLEMENTATION = "compiled"
    except ImportError:
        from engine.ingest.segments._intake_py import DatasetBuilder, Intake

__all__ = ["IMPLEMENTATION", "DatasetBuilder", "Intake"]
