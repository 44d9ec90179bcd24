"""The lanes of an installation, and where each layer finds them.

A lane is a kind of work. In each layer (``engine``, ``spark``, ``tasks``, ``webadmin``) it is one package with a module
``manifest``. Other modules of a layer iterate over the manifests and name no lane.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from engine.settings.base import BadSetting, EnvironmentSettings, Names, setting

SHIPPED_LANES = ("profiles", "tsdb", "tables", "catalog")


class LaneSettings(EnvironmentSettings):
    """The kinds of work that a process supports; the same in every process of an installation."""

    LITHIFY_LANES: Names = setting(
        "comma separated kinds of work: names of shipped lanes, and packages of others such as example.lanes.echo",
        list(SHIPPED_LANES),
    )


def lane_package(layer: str, lane: str) -> str:
    """Return the package of a lane in a layer: ``spark.lanes.tsdb``, or ``example.lanes.echo.spark``."""
    return f"{lane}.{layer}" if "." in lane else f"{layer}.lanes.{lane}"


def listed_lanes() -> list[str]:
    """Return the lanes of LITHIFY_LANES."""
    return LaneSettings.read().LITHIFY_LANES


def lane_manifests(layer: str, lanes: Iterable[str] | None = None) -> dict[str, Any]:
    """Return the manifests of a layer by the names of their lanes, in the sequence of ``lanes``: of LITHIFY_LANES.

    Raises BadSetting if a lane has no package in this layer.
    """
    found = {}
    for lane in listed_lanes() if lanes is None else lanes:
        package = lane_package(layer, lane)
        try:
            exists = find_spec(f"{package}.manifest") is not None
        except ModuleNotFoundError:
            exists = False
        if not exists:
            raise BadSetting(f"LITHIFY_LANES names {lane!r}: expected a lane, found no module {package}.manifest")
        manifest = import_module(f"{package}.manifest").MANIFEST
        found[manifest.name] = manifest
    return found
