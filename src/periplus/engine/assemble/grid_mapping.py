"""CRS and transform of arrays as CF grid mappings that rioxarray reads, with an index where xproj is installed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import xarray as xr
from xarray.indexes import Index

from periplus.conventions.cf.encode import transform_of
from periplus.conventions.diagnostic import Diagnostic
from periplus.conventions.proj.crs import agrees_with_cf, describe_crs, georeference_attributes
from periplus.conventions.spatial.grid import close
from periplus.engine.assemble.coordinates import MadeCoordinate
from periplus.engine.assemble.draft import DatasetDraft
from periplus.engine.assemble.source import Findings
from periplus.model import Georeference

GRID_MAPPING = "spatial_ref"


KEPT = ("gcps", "rpc")
"""Attributes of a stored grid mapping that do not depend on its CRS and transform."""


@dataclass(frozen=True, slots=True)
class LocatedArray:
    """An array that needs a grid mapping."""

    path: str
    georeference: Georeference
    dims: tuple[str, ...]
    """The dimensions (y, x) of its grid, empty where it has no transform."""


class GridMappings:
    """The grid mappings of one Dataset: arrays of the same CRS and grid share one; `indexed` by xproj or not."""

    def __init__(self, draft: DatasetDraft, findings: Findings, *, indexed: bool) -> None:
        self.draft, self.findings, self.indexed = draft, findings, indexed
        self._made: list[tuple[Georeference, tuple[str, ...], str]] = []

    def assign(self, arrays: Mapping[str, LocatedArray]) -> None:
        """Give every array a grid mapping: the stored one where it agrees, else a new one, in place of it if unused."""
        draft = self.draft
        stored = {name: mapping for name in draft.arrays if (mapping := self._stored(name)) is not None}
        kept = {name for name in stored if name not in arrays or self._agrees(stored[name], arrays[name])}
        free = set(stored.values()) - {stored[name] for name in kept}
        for name, array in arrays.items():
            if name in kept:
                continue  # xarray and rioxarray read it
            mapping = self._name_for(name, array, stored.get(name), free)
            if mapping is None:
                continue
            draft.coords.add(mapping)
            draft.raw[name].attrs.pop("grid_mapping", None)
            draft.raw[name].encoding["grid_mapping"] = mapping

    def _stored(self, name: str) -> str | None:
        """The stored grid mapping that an array refers to, by its name in the draft."""
        stated = self.draft.raw[name].attrs.get("grid_mapping") if name in self.draft.raw else None
        mapping = stated.split(":")[0].strip() if isinstance(stated, str) else ""
        return mapping if mapping in self.draft.raw else None

    def _agrees(self, mapping: str, array: LocatedArray) -> bool:
        """Whether a stored grid mapping has the CRS of an array and, if it has any, its transform."""
        attributes, place = self.draft.raw[mapping].attrs, array.georeference
        if place.crs is not None and not agrees_with_cf(place.crs, attributes):
            return False
        stated = transform_of(attributes.get("GeoTransform"))
        if stated is None or place.transform is None or not array.dims:
            return True
        height, width = (self.draft.sizes[dim] for dim in array.dims)
        return close(place.transform, stated, (height, width))

    def _name_for(self, name: str, array: LocatedArray, stored: str | None, free: set[str]) -> str | None:
        """The name of an array's grid mapping, which is added where it is new; None where it needs none."""
        draft = self.draft
        for other, along, made in self._made if stored not in free else ():
            if other == array.georeference and along == array.dims:
                return made
        attributes, index = self._described(array.path, array.georeference)
        if not attributes:
            return None
        if stored is not None and stored in free:
            free.remove(stored)
            old = draft.raw.pop(stored).attrs
            attributes = {**{key: old[key] for key in KEPT if key in old}, **attributes}
        wanted = GRID_MAPPING if stored is None else stored
        wanted = f"{name}_{GRID_MAPPING}" if draft.holds(wanted) else wanted
        if draft.holds(wanted):
            return None
        draft.ready[wanted] = MadeCoordinate(xr.Variable((), 0, attributes), index)
        self._made.append((array.georeference, array.dims, wanted))
        return wanted

    def _described(self, path: str, georeference: Georeference) -> tuple[dict[str, Any], Index | None]:
        """Attributes of the grid mapping, and its index."""
        attributes, unknown = georeference_attributes(georeference)
        if unknown is not None:
            note = Diagnostic("proj.unknown", "warning", path, "proj", f"the CRS is ignored: {unknown.message}")
            self.findings.add([note])
        indexed = self.indexed and unknown is None and georeference.crs is not None
        return attributes, crs_index(georeference.crs or "") if indexed else None


@lru_cache(maxsize=128)
def crs_index(text: str) -> Index | None:
    """The index of xproj for a CRS; None where xproj is not installed."""
    if find_spec("xproj") is None:
        return None
    from xproj import CRSIndex  # type: ignore[import-untyped]

    return CRSIndex(describe_crs(text).wkt2)  # type: ignore[no-any-return]
