"""Write a window that was read as .npy, .tif or .png."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import click
import numpy as np
from numpy.typing import NDArray

from periplus.model import GroundControlPoint, Transform


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OutputImage:
    """Stored values of a window, and the metadata for a file."""

    values: NDArray[Any]
    dims: tuple[str, ...]
    transform: Transform | None
    crs: str | None
    gcps: tuple[GroundControlPoint, ...] = ()
    rpc: Mapping[str, Any] | None = None
    nodata: Any = None
    """One value, or one for each band."""
    bands: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Of these bands: scale_factor, add_offset, units, each one value or one for each band; colormap, photometric."""
    stretch: tuple[float, float] | None = None
    """Values of black and white; None to take them from the data."""
    coordinates: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """Labels of dimensions, such as times, where they are known."""


def stacked(picture: OutputImage) -> NDArray[Any]:
    """(bands, y, x) of an image of one time."""
    values, dims = picture.values, list(picture.dims)
    for axis in reversed(range(len(dims) - 2)):
        if dims[axis] != "bands":
            if values.shape[axis] != 1:
                raise click.UsageError(
                    f"this window has {values.shape[axis]} steps along {dims[axis]}, and an image has one: "
                    f"{one_step(picture, dims[axis])}, or write .npy"
                )
            values = values.squeeze(axis)
            del dims[axis]
    return values if dims[0] == "bands" else values[None]


def one_step(picture: OutputImage, dim: str) -> str:
    """How to choose one step along a dimension."""
    labels = picture.coordinates.get(dim)
    if labels is None or labels.dtype.kind != "M" or not (known := labels[~np.isnat(labels)]).size:
        return "choose one with --array and --window"
    return f"add for example --time {np.datetime_as_string(known.max(), unit='s')}"


def write_npy(picture: OutputImage, file: BinaryIO) -> None:
    """NumPy's format; all dimensions, values as stored."""
    np.lib.format.write_array(file, np.ascontiguousarray(picture.values), allow_pickle=False)


def write_tif(picture: OutputImage, file: BinaryIO) -> None:
    """A GeoTIFF; values as stored, with nodata, scale, offset and band names, and what locates the pixels."""
    from periplus.cli.output.geotiff import CODE, write
    from periplus.conventions.proj.crs import describe_crs

    bands = stacked(picture)
    # Where only RPCs locate the pixels, which is in degrees, the file has no coordinates.
    crs, geographic = picture.crs if picture.transform or picture.gcps or not picture.rpc else None, False
    if crs is not None:
        known = describe_crs(crs)
        geographic = known.is_geographic
        # GeoKeys have codes for these two kinds and for vertical CRSs only; others are written as WKT.
        coded = known.code is not None and known.code.startswith("EPSG:")
        simple = known.wkt2.startswith(("PROJCRS[", "GEOGCRS["))
        crs = crs if CODE.fullmatch(crs) and "+" in crs else known.code if coded and simple else known.wkt2
    nodata = set(each(picture.nodata, len(bands)))
    if len(nodata) > 1:
        click.echo("periplus: nodata differs between bands and a GeoTIFF has one value: none is written", err=True)
    write(
        file,
        bands,
        transform=picture.transform,
        gcps=picture.gcps,
        rpc=picture.rpc,
        crs=crs,
        geographic=geographic,
        nodata=nodata.pop() if len(nodata) == 1 else None,
        items=items(picture, len(bands)),
        colormap=picture.attributes.get("colormap"),
        white_is_zero=picture.attributes.get("photometric") == "min_is_white",
    )


def write_png(picture: OutputImage, file: BinaryIO) -> None:
    """An 8-bit image; the range of values shown is printed on stderr."""
    from periplus.pictures import encode, paint, stretch

    bands = stacked(picture)
    if bands.dtype.kind == "c":
        raise click.UsageError("complex values cannot be shown as PNG: write .npy or .tif")
    if len(bands) not in ((1, 3, 4) if bands.dtype == np.uint8 else (1, 3)):
        raise click.UsageError(f"a PNG has 1 or 3 bands, and this window {len(bands)}: choose some with --bands")
    nodata = each(picture.nodata, len(bands))
    colours = picture.attributes.get("colormap")
    if colours and len(bands) == 1 and bands.dtype.kind in "iu" and picture.stretch is None:
        file.write(encode(paint(bands[0], colours, nodata=nodata[0])))
        return
    image, shown = stretch(bands, nodata=nodata, limits=picture.stretch)
    if len(bands) == 1 and picture.attributes.get("photometric") == "min_is_white":
        image[..., 0] = 255 - image[..., 0]
    file.write(encode(image))
    if shown is not None:
        how = "--stretch" if picture.stretch else "2nd to 98th percentile"
        click.echo(f"stretched: {shown[0]:.6g} is black, {shown[1]:.6g} is white ({how})", err=True)


def each(value: Any, count: int) -> list[Any]:
    """A list with one value for each band."""
    return list(value) if isinstance(value, list | tuple) else [value] * count


def items(picture: OutputImage, count: int) -> Iterable[tuple[int, str, str]]:
    """Band names, units, scales and offsets, as in GDAL's metadata."""
    roles = {"scale_factor": "scale", "add_offset": "offset", "units": "unittype"}
    for band, name in enumerate(picture.bands[:count]):
        yield band, "description", name
    for attribute, role in roles.items():
        values = each(picture.attributes.get(attribute), count)
        for band, value in enumerate(values if len(values) == count else ()):
            if value is not None:
                yield band, role, str(value)


WRITERS: Mapping[str, Callable[[OutputImage, BinaryIO], None]] = {
    ".npy": write_npy,
    ".tif": write_tif,
    ".tiff": write_tif,
    ".png": write_png,
}
