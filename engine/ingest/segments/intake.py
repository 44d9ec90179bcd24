"""Process profiles for a segment: ``Intake`` handles one profile at a time, ``DatasetBuilder`` collects the rows.

Selects one of two implementations with equal output and errors: the compiled one if it is built, unless
``LITHIFY_PURE=1``; otherwise the pure Python reference. A dataset builder belongs to the intake that it was created
with.
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
