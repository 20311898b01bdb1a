"""periplus read: read a window of an image and write it to a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from periplus.cli.options import (
    BBox,
    Numbers,
    Point,
    TextParam,
    Time,
    Window,
    access,
    box_of,
    open_any,
    parse_floats,
    usage_errors,
)
from periplus.cli.output.progress import bar
from periplus.cli.output.text import extent

if TYPE_CHECKING:
    from periplus import Index
    from periplus.cli.output.progress import Progress
    from periplus.cli.output.window import OutputImage
    from periplus.model import Array, Georeference


class Stretch(TextParam):
    """Two numbers: low,high."""

    name = "low,high"

    def parse(self, text: str) -> Any:
        return parse_floats(text, [2], f"two numbers {self.name}")


@click.command("read")
@click.argument("url", metavar="INDEX_OR_FILE")
@click.option(
    "--array",
    metavar="NAME",
    help="An image (data, or its group) or one of its levels (1/data).  [default: the only image, or the only one in "
    "--bbox and --time]",
)
@click.option("--bbox", type=BBox(), help="The box to read, in --crs.  [default: the whole image]")
@click.option("--point", type=Point(), help="Read the pixel at this point, in --crs; instead of --bbox.")
@click.option("--crs", help="CRS of --bbox or --point, for example EPSG:4326.  [default: the CRS of the image]")
@click.option(
    "--level", type=click.IntRange(min=0), help="Read this level of the image; 0 is full resolution, 1 is coarser."
)
@click.option(
    "--resolution",
    type=Numbers(),
    help="Read the coarsest level with pixels of at most this size, in units of the CRS of the image.",
)
@click.option(
    "--max-size", type=click.IntRange(min=1), help="Read a level with at most this many pixels along the longer side."
)
@click.option(
    "--time", type=Time(), help="A time (2021-06-01T10:00), a period (2021-06), or a range (2021-06-01/2021-06-15)."
)
@click.option("--bands", metavar="BAND,...", help="Bands by number from 1, or by name; a name may be in double quotes.")
@click.option(
    "--window", type=Window(), help="Pixel ranges along the last dimensions of --array, instead of the options above."
)
@click.option(
    "--stretch", type=Stretch(), help="PNG: the values of black and white.  [default: 2nd and 98th percentile]"
)
@click.option(
    "-o", "--output", required=True, metavar="FILE", help="A .npy, .tif or .png file; - writes .npy to standard output."
)
@click.option("--quiet", "-q", is_flag=True, help="No progress bar, no summary.")
@access
def command(
    url: str,
    array: str | None,
    window: Sequence[tuple[int, int]] | None,
    bands: str | None,
    stretch: tuple[float, float] | None,
    output: str,
    quiet: bool,
    **wanted: Any,
) -> None:
    """Read a window of an image into a NumPy file, a GeoTIFF or a PNG.

    The argument is an index, or an image file, which is indexed first.

    Values are read as stored and never resampled. With --resolution or --max-size a coarser level (overview) is read;
    where even the coarsest level is larger than --max-size, every n-th pixel of it. A GeoTIFF or PNG is one image:
    choose one time of a stack with --time. An image that only ground control points or RPCs locate is not rectified:
    all pixels that may show the --bbox are read, and a GeoTIFF has the points or RPCs.

    \b
    periplus read archive.parquet --max-size 1024 --time 2023-07 --bands 1,2,3 -o overview.png
    periplus read archive.parquet --bbox 14.1,47.2,14.2,47.3 --crs EPSG:4326 --time 2023-07-07 -o window.tif
    periplus read archive.parquet --point 14.15,47.25 --crs EPSG:4326 -o series.npy
    periplus read archive.parquet --array 0/data --window 0:512,0:512 -o - | python analyse.py
    periplus read s3://bucket/scene.ntf --max-size 1024 -o scene.png
    """
    from periplus.cli.output.target import check_output, is_stream, opened
    from periplus.cli.output.window import WRITERS

    suffix = os.path.splitext(output)[1].lower() or (".npy" if is_stream(output) else "")
    if suffix not in WRITERS:
        raise click.UsageError(f"-o {output}: the file name must end in {', '.join(WRITERS)}, or be -.")
    if stretch is not None and suffix != ".png":
        raise click.UsageError(f"--stretch has no effect on {suffix}: it applies to .png.")
    if window is not None and (
        given := [name for name, value in {**wanted, "bands": bands}.items() if value is not None]
    ):
        raise click.UsageError(
            f"--window cannot be combined with {', '.join('--' + n.replace('_', '-') for n in given)}."
        )
    wanted["bbox"] = box_of(wanted["bbox"], wanted.pop("point"))
    with open_any(url) as index:
        check_output(output, url, index)
        with bar("reading", "chunks", quiet=quiet) as report, usage_errors():
            if window is not None:
                image = by_window(index, array, window, stretch, report)
            else:
                image = by_bbox(index, array, numbers(bands), stretch, report, wanted)
        with opened(output) as file:
            WRITERS[suffix](image, file)
    if not quiet:
        shape, dims = extent(image.values.shape), ", ".join(image.dims)
        click.echo(f"{output}: {shape} ({dims}) {image.values.dtype}", err=True)
        if image.transform is None and (image.gcps or image.rpc):
            by = "ground control points" if image.gcps else "RPCs"
            click.echo(f"note: the image is located by {by}: its pixels are not rectified", err=True)


def numbers(bands: str | None) -> list[int | str] | None:
    """Bands as numbers where they are digits, else as names, which may be in quotes."""
    if bands is None:
        return None
    return [int(band) if band.isdigit() else _unquoted(band) for band in map(str.strip, bands.split(","))]


def _unquoted(name: str) -> str:
    return name[1:-1] if len(name) > 2 and name[0] == name[-1] == '"' else name


def by_bbox(
    index: Index,
    array: str | None,
    bands: list[int | str] | None,
    stretch: tuple[float, float] | None,
    report: Progress | None,
    wanted: dict[str, Any],
) -> OutputImage:
    """The window for a bounding box, a resolution and a time."""
    from periplus.cli.output.window import OutputImage

    raster = index.read(array=array, bands=bands, progress=report, **wanted)
    source = index[raster.array].array
    names = [str(name) for name in source.attributes.get("band_names") or ()]
    for band in bands or ():
        if isinstance(band, int) and str(band) in names and names.index(str(band)) != band - 1:
            raise ValueError(
                f"--bands {band} is the number of band {names[band - 1]!r} and the name of another: write the "
                f"name in double quotes, --bands '\"{band}\"' or '\"{names[band - 1]}\"'"
            )
    chosen = None if bands is None else [names.index(b) if isinstance(b, str) else b - 1 for b in bands]
    return OutputImage(
        values=raster.values,
        dims=raster.dims,
        transform=raster.transform,
        crs=raster.crs,
        gcps=raster.gcps,
        rpc=raster.rpc,
        nodata=raster.nodata,
        bands=raster.bands,
        attributes=of_bands(source, chosen),
        stretch=stretch,
        coordinates=raster.coordinates,
    )


def by_window(
    index: Index,
    name: str | None,
    window: Sequence[tuple[int, int]],
    stretch: tuple[float, float] | None,
    report: Progress | None,
) -> OutputImage:
    """A window of one array by ranges of its last dimensions."""
    from periplus.cli.output.window import OutputImage, each

    if name is None:
        raise click.UsageError("--window selects pixels of one array: choose it with --array.")
    source = index[name].array
    if len(window) > source.ndim:
        raise click.UsageError(f"--window has {len(window)} ranges, but {name} has {source.ndim} dimensions.")
    ranges = [(0, n) for n in source.shape[: source.ndim - len(window)]] + list(window)
    for (start, stop), size, dim in zip(ranges, source.shape, source.dims, strict=True):
        if stop > size:
            raise click.UsageError(f"--window {start}:{stop} ends past the {size} of dimension {dim}.")
    values = index[name].read(tuple(slice(start, stop) for start, stop in ranges), progress=report)
    span = dict(zip(source.dims, ranges, strict=True))
    chosen = list(range(*span["bands"])) if "bands" in span else None
    kept = of_bands(source, chosen)
    names = each(source.attributes.get("band_names") or [], 0)
    place = located(index, source, span)
    return OutputImage(
        values=values,
        dims=source.dims,
        transform=place.transform,
        crs=place.crs,
        gcps=place.gcps,
        rpc=place.rpc,
        nodata=kept.get("_FillValue"),
        bands=tuple(str(names[band]) for band in chosen or () if band < len(names)),
        attributes=kept,
        stretch=stretch,
    )


def of_bands(source: Array, chosen: list[int] | None) -> dict[str, Any]:
    """The attributes of an array; lists with a value for each band are reduced to the chosen bands."""
    count = source.shape[source.dims.index("bands")] if "bands" in source.dims else None
    return {
        name: [value[band] for band in chosen]
        if chosen is not None and isinstance(value, list | tuple) and len(value) == count
        else value
        for name, value in source.attributes.items()
    }


def located(index: Index, source: Array, span: dict[str, tuple[int, int]]) -> Georeference:
    """The georeference of the pixels of the window."""
    from periplus.model import Georeference
    from periplus.model.affine import cropped

    where, finest = source.georeference or Georeference(), index.table.catalog.levels(source.pyramid)[0]
    if "x" not in span or "y" not in span:
        return Georeference(crs=where.crs)
    if where.transform is None and not where.gcps and where.rpc is None and finest.georeference is not None:
        down, across = (finest.shape[i] / source.shape[i] for i in (source.dims.index("y"), source.dims.index("x")))
        where = cropped(finest.georeference, 0, 0, down, across)
    return cropped(where, span["y"][0], span["x"][0])
