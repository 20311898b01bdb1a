"""The CRS of arrays as coordinates: a CF grid mapping that rioxarray reads, with an index where xproj is installed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import xarray as xr
from xarray.indexes import Index

from periplus.conventions.diagnostic import Diagnostic
from periplus.conventions.meaning import Meaning
from periplus.conventions.proj.crs import describe_crs, grid_mapping
from periplus.engine.place import GRID_MAPPING
from periplus.engine.xgroup.coordinates import Made
from periplus.engine.xgroup.draft import Draft
from periplus.engine.xgroup.opening import Opening
from periplus.errors import FormatError


class Mappings:
    """The grid mappings of one Dataset: arrays of the same CRS and grid share one."""

    def __init__(self, opening: Opening) -> None:
        self.opening = opening
        self._known: dict[Any, str] = {}

    def of(self, name: str, meaning: Meaning, draft: Draft, dims: Mapping[str, str]) -> str | None:
        """The name of an array's grid mapping, put into the draft where it is new; None where it needs none."""
        if meaning.crs is None:
            return None
        stored = draft.raw[name].attrs.get("grid_mapping")
        if isinstance(stored, str) and stored.split(":")[0].strip() in draft.raw:
            return None  # as stored; xarray and rioxarray read it as it is
        grid = meaning.grid
        transform = None if grid is None else grid.corner
        along = None if grid is None else tuple(dims.get(dim, dim) for dim in grid.dims)
        key = (meaning.crs.text, transform, along)
        if key in self._known:
            return self._known[key]
        try:
            attributes = grid_mapping(meaning.crs.text, transform)
            index = crs_index(meaning.crs.text)
        except FormatError as error:
            note = Diagnostic("proj.unknown", "warning", meaning.path, "proj", f"the CRS is left out: {error.message}")
            self.opening.report.add([note])
            return None
        wanted = f"{name}_{GRID_MAPPING}" if draft.holds(GRID_MAPPING) else GRID_MAPPING
        if draft.holds(wanted):
            return None
        draft.ready[wanted] = Made(xr.Variable((), 0, attributes), index)
        self._known[key] = wanted
        return wanted


@lru_cache(maxsize=128)
def crs_index(text: str) -> Index | None:
    """The index of xproj for a CRS; None where xproj is not installed."""
    if find_spec("xproj") is None:
        return None
    from xproj import CRSIndex  # type: ignore[import-untyped]

    return CRSIndex(describe_crs(text).wkt2)  # type: ignore[no-any-return]
