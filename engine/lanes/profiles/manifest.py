"""The lane of profiles in the engine."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from engine.formats.profile_block.merge_model import Scratch
from engine.lanes.manifest import EngineManifest, MergeRun
from engine.lanes.profiles.jobs import KIND, ProfileMergeSpec
from engine.lanes.profiles.merge import merge


def _merge(spec: ProfileMergeSpec, run: MergeRun) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=run.scratch) as folder:
        return merge.run(spec, run.store, scratch=Scratch(Path(folder)), cancelled=run.cancelled).to_json()


MANIFEST = EngineManifest(name=KIND, read_spec=ProfileMergeSpec.from_json, merge=_merge)
