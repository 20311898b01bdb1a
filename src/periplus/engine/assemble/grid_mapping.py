"""CRS and transform of arrays as CF grid mappings that rioxarray reads, with an index where xproj is installed."""

from __future__ import annotations

import json
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import xarray as xr
from xarray.indexes import Index

from periplus.conventions.cf.encode import control_points
from periplus.conventions.diagnostic import Diagnostic
from periplus.conventions.proj.crs import describe_crs, grid_mapping
from periplus.engine.assemble.coordinates import MadeCoordinate
from periplus.engine.assemble.draft import DatasetDraft
from periplus.engine.assemble.source import Findings
from periplus.errors import FormatError
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
        crs, transform = georeference.crs, georeference.transform
        index = None
        try:
            attributes = grid_mapping(crs, transform)
            index = crs_index(crs) if crs is not None and self.indexed else None
        except FormatError as error:
            # Pixels can be read without a CRS: warn, and keep the text that the source declares.
            note = Diagnostic("proj.unknown", "warning", path, "proj", f"the CRS is ignored: {error.message}")
            self.findings.add([note])
            attributes = {**grid_mapping(None, transform), "unknown_crs": crs}
        if georeference.gcps:
            attributes["gcps"] = control_points(georeference.gcps)
        if georeference.rpc is not None:
            attributes["rpc"] = json.dumps(dict(georeference.rpc), default=str)
        return attributes, index


@lru_cache(maxsize=128)
def crs_index(text: str) -> Index | None:
    """The index of xproj for a CRS; None where xproj is not installed."""
    if find_spec("xproj") is None:
        return None
    from xproj import CRSIndex  # type: ignore[import-untyped]

    return CRSIndex(describe_crs(text).wkt2)  # type: ignore[no-any-return]
