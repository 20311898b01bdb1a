"""Write conventions to a Zarr hierarchy, a Dataset or a DataTree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import xarray as xr
import zarr

from periplus.conventions.proj.crs import CrsLike, crs_text
from periplus.engine.publish.dataset import on_dataset, on_tree
from periplus.engine.publish.layers import ConventionSettings, transform_of
from periplus.engine.publish.zarr import into_zarr, open_to_write
from periplus.errors import DeniedError
from periplus.model import Transform


def write_conventions(
    target: Any,
    *,
    crs: CrsLike | None = None,
    transform: Transform | None = None,
    registration: str | None = None,
    spatial_dims: tuple[str, str] | None = None,
    resampling: str | None = None,
    cf: bool = True,
    labels: bool | None = None,
    consolidate: bool | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Any:
    """Declare multiscales, spatial and proj, with boxes, WKT2, code, PROJJSON and a CF grid mapping.

    A copy of a Dataset or DataTree with the attributes is returned. Anything else is opened as a Zarr group, whose
    metadata are changed, and consolidated again if they were (`consolidate`); what was written is returned.

    `crs` is text, an EPSG number, or a CRS of pyproj or rasterio. The finest level has the given `transform`, (a, b, c,
    d, e, f) or an `Affine` of rasterio, of pixel corners, or of samples with `registration="node"`; by default that of
    the labels of x and y, which must be evenly spaced, else the one that the attributes declare, in any draft.
    `registration` is "pixel" or "node" (or GDAL's "area" or "point", for which `transform` is always of pixel corners);
    the default is what the attributes declare, else "pixel".

    Groups 0, 1, 2 …, or the children of a DataTree, are levels of a pyramid. Lazy labels of x and y of a Dataset are
    dropped, since the transform gives them; `labels` keeps or drops all.
    """
    for name, value in (("labels", labels), ("consolidate", consolidate), ("cf", cf)):
        if value not in (None, True, False):
            raise TypeError(f"{name}= is True or False, not {value!r}")
    wanted = ConventionSettings(
        crs=crs_text(crs),
        transform=transform_of(transform),
        registration=registration,
        dims=spatial_dims,
        resampling=resampling,
        cf=cf,
    )
    if isinstance(target, xr.Dataset):
        return on_dataset(target, wanted, labels)
    if isinstance(target, xr.DataTree):
        return on_tree(target, wanted, labels)
    group = target if isinstance(target, zarr.Group) else open_to_write(target, storage_options)
    if group.read_only:
        raise DeniedError("the Zarr group was opened read-only")
    return into_zarr(group, wanted, consolidate)
