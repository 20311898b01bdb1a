"""CRS and transform of arrays as CF grid mappings that rioxarray reads, with an index where xproj is installed."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import xarray as xr
from xarray.indexes import Index

from periplus.conventions.diagnostic import Diagnostic
from periplus.conventions.proj.crs import describe_crs, georeference_attributes
from periplus.engine.assemble.coordinates import MadeCoordinate
from periplus.engine.assemble.draft import DatasetDraft
from periplus.engine.assemble.source import Findings
from periplus.model import Georeference

GRID_MAPPING = "spatial_ref"


class GridMappings:
    """The grid mappings of one Dataset: arrays of the same CRS and grid share one; `indexed` by xproj or not."""

    def __init__(self, draft: DatasetDraft, findings: Findings, *, indexed: bool) -> None:
        self.draft, self.findings, self.indexed = draft, findings, indexed
        self._made: list[tuple[Georeference, tuple[str, ...], str]] = []

    def name_for(self, name: str, path: str, georeference: Georeference, dims: tuple[str, ...]) -> str | None:
        """The name of an array's grid mapping, which is added where it is new; None where it needs none.

        `dims` are the dimensions (y, x) of the array's grid, empty where it has no transform.
        """
        draft = self.draft
        stored = draft.raw[name].attrs.get("grid_mapping")
        if isinstance(stored, str) and stored.split(":")[0].strip() in draft.raw:
            return None  # stored with the arrays; xarray and rioxarray read it
        for other, along, made in self._made:
            if other == georeference and along == dims:
                return made
        wanted = f"{name}_{GRID_MAPPING}" if draft.holds(GRID_MAPPING) else GRID_MAPPING
        if draft.holds(wanted):
            return None
        attributes, index = self._described(path, georeference)
        if not attributes:
            return None
        draft.ready[wanted] = MadeCoordinate(xr.Variable((), 0, attributes), index)
        self._made.append((georeference, dims, wanted))
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
