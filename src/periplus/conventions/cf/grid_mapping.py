"""CF grid mappings: the grid that GDAL's GeoTransform gives, and findings where a declared convention contradicts."""

from __future__ import annotations

from periplus.conventions.cf.encode import transform_of
from periplus.conventions.context import Reading, shown
from periplus.conventions.meaning import CrsText, Grid
from periplus.conventions.node import Node
from periplus.conventions.proj.crs import agrees_with_cf, describe_crs
from periplus.conventions.spatial.grid import close, usual_dims

BY_GRID_MAPPING = "CF"
"""The convention of coordinates that a GeoTransform gives. Stored labels come first: GDAL writes netCDF files with rows
from south to north and a GeoTransform from north to south."""


def grid_by_mapping(reading: Reading, mapping: Node | None) -> Grid | None:
    """The grid of the array being read by the GeoTransform of its grid mapping: over y and x, or its last two dims."""
    node = reading.node
    if mapping is None or "GeoTransform" not in mapping.attributes or len(node.shape) < 2:
        return None
    transform = transform_of(mapping.attributes["GeoTransform"])
    if transform is None:
        message = f"the GeoTransform of {mapping.path}, {shown(mapping.attributes['GeoTransform'])}, is no transform"
        reading.note("cf.grid-mapping", "warning", "grid_mapping", message, "write six numbers in GDAL's order")
        return None
    dims, sizes = usual_dims(node.dims) or node.dims[-2:], node.sizes
    named = [dim for dim in dims if dim is not None and dim in sizes]
    if len(named) != 2:
        return None
    y, x = named
    return Grid(dims=(y, x), shape=(sizes[y], sizes[x]), transform=transform)


def check_grid_mapping(
    reading: Reading, mapping: Node | None, crs: CrsText | None, grid: Grid | None, other: Grid | None
) -> None:
    """Findings where a grid mapping has another CRS, or another grid, than the declared ones, which are used."""
    if mapping is None:
        return
    hint = "write the same in both"
    if crs is not None and agrees_with_cf(crs.text, mapping.attributes) is False:
        used = crs.code or describe_crs(crs.text).projjson.get("name", "the declared one")
        message = f"{mapping.path} has another CRS than {crs.origin} declares; {used} is used"
        reading.note("cf.grid-mapping-differs", "warning", "grid_mapping", message, hint)
    if grid is None or other is None:
        return
    # Its rows are along the first of both dimensions by some writers, and along y by others.
    ways = [one for dims in (other.dims, other.dims[::-1]) if (one := grid.over(dims)) is not None]
    if ways and not any(close(one.corner, other.transform, one.shape) for one in ways):
        message = f"the GeoTransform of {mapping.path} is not the declared spatial:transform, which is used"
        reading.note("cf.grid-mapping-differs", "warning", "grid_mapping", message, hint)
