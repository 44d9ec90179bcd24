"""Process profiles for a segment: ``Intake`` handles one profile at a time, ``DatasetBuilder`` collects the rows.

Selects one of two implementations with equal output and errors: the compiled one if it is built, unless
``LITHIFY_PURE=1``; otherwise the pure Python reference. A dataset builder belongs to the intake that it was created
with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.kernels import load_kernel

if TYPE_CHECKING:
    from engine.ingest.segments._intake_py import DatasetBuilder, Intake
else:
    _TWIN = "engine.ingest.segments._intake_py"
    (DatasetBuilder,) = load_kernel("engine.ingest.segments._dataset_rows", "DatasetBuilder", twin=_TWIN)
    (Intake,) = load_kernel("engine.ingest.segments._intake", "Intake", twin=_TWIN)

__all__ = ["DatasetBuilder", "Intake"]
