"""periplus read: a window of an image, to a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from periplus.cli.options import BBox, Numbers, Param, Time, Window, access, asked, open_any
from periplus.cli.output.progress import bar
from periplus.cli.output.text import extent

if TYPE_CHECKING:
    from periplus import Index
    from periplus.cli.output.progress import Progress
    from periplus.cli.output.window import Picture
    from periplus.model import Array, Transform


class Stretch(Param):
    """Two numbers: low,high."""

    name = "low,high"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        try:
            low, high = (float(part) for part in value.split(","))
        except ValueError:
            self.fail(f"{value!r} is not two numbers low,high", param, ctx)
        return low, high


@click.command("read")
@click.argument("url", metavar="INDEX_OR_FILE")
@click.option(
    "--array",
    metavar="NAME",
    help="An image (data, or a group) or a level of it (1/data).  [default: the only one, or of that place and time]",
)
@click.option("--bbox", type=BBox(), help="The box to read, in --crs.  [default: everything]")
@click.option("--crs", help="CRS of --bbox, for example EPSG:4326.  [default: that of the image]")
@click.option("--resolution", type=Numbers(), help="Pixel size wanted, in units of the image's CRS; picks the level.")
@click.option("--max-size", type=click.IntRange(min=1), help="Longest side wanted, in pixels; picks the level.")
@click.option("--time", type=Time(), help="A moment, a period (2021-06), or a span (2021-06-01/2021-06-15).")
@click.option("--bands", metavar="BAND,...", help="Bands by number from 1, or by name.")
@click.option(
    "--window", type=Window(), help="Pixels of --array, ranges of its last dimensions, in place of all these."
)
@click.option("--stretch", type=Stretch(), help="PNG: values shown black and white.  [default: 2nd, 98th percentile]")
@click.option("-o", "--output", required=True, metavar="FILE", help=".npy, .tif or .png; - is .npy on standard output.")
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
    allow: Sequence[str],
    trust: bool,
    storage_options: Sequence[tuple[str, str]],
    **wanted: Any,
) -> None:
    """Read a window of an image into a NumPy file, a GeoTIFF or a PNG.

    The image is of an index, or of a file that is scanned first.

    Values are as stored, never resampled: with --resolution or --max-size a coarser level is read (and
    every n-th pixel of it, where even the coarsest is larger than --max-size).

    \b
    periplus read archive.parquet --max-size 1024 --time 2023-07 --bands 1,2,3 -o overview.png
    periplus read archive.parquet --bbox 14.1,47.2,14.2,47.3 --crs EPSG:4326 --time 2023-07-07 -o window.tif
    periplus read archive.parquet --array 0/data --window 0:512,0:512 -o - | python analyse.py
    periplus read s3://bucket/scene.ntf --max-size 1024 -o scene.png
    """
    from periplus.cli.output.target import opened
    from periplus.cli.output.window import WRITERS

    suffix = ".npy" if output == "-" else os.path.splitext(output)[1].lower()
    if suffix not in WRITERS:
        raise click.UsageError(f"-o {output}: the name must end in {', '.join(WRITERS)}, or be -.")
    if window is not None and (
        given := [name for name, value in {**wanted, "bands": bands}.items() if value is not None]
    ):
        raise click.UsageError(
            f"--window stands alone: leave out {', '.join('--' + n.replace('_', '-') for n in given)}."
        )
    with open_any(url, allow=allow, trust=trust, storage_options=storage_options) as index:
        with bar("reading", "chunks", quiet=quiet) as report, asked():
            if window is not None:
                picture = by_window(index, array, window, stretch, report)
            else:
                picture = by_place(index, array, numbers(bands), stretch, report, wanted)
        with opened(output) as file:
            WRITERS[suffix](picture, file)
    if not quiet:
        shape, dims = extent(picture.values.shape), ", ".join(picture.dims)
        click.echo(f"{output}: {shape} ({dims}) {picture.values.dtype}", err=True)


def numbers(bands: str | None) -> list[int | str] | None:
    """Bands as the library takes them: numbers where they are digits, else names."""
    if bands is None:
        return None
    return [int(band) if band.strip().isdigit() else band.strip() for band in bands.split(",")]


def by_place(
    index: Index,
    array: str | None,
    bands: list[int | str] | None,
    stretch: tuple[float, float] | None,
    report: Progress | None,
    wanted: dict[str, Any],
) -> Picture:
    """The window a bbox, a resolution and a time mean."""
    from periplus.cli.output.window import Picture

    raster = index.read(array=array, bands=bands, progress=report, **wanted)
    source = index[raster.array].array
    names = [str(name) for name in source.attributes.get("band_names") or ()]
    for band in bands or ():
        if isinstance(band, int) and str(band) in names and names.index(str(band)) != band - 1:
            raise ValueError(f"--bands {band} is the number of {names[band - 1]!r}, and the name of another band")
    chosen = None if bands is None else [names.index(b) if isinstance(b, str) else b - 1 for b in bands]
    return Picture(
        values=raster.values,
        dims=raster.dims,
        transform=raster.transform,
        crs=raster.crs,
        nodata=raster.nodata,
        bands=raster.bands,
        attributes=of_bands(source, chosen),
        stretch=stretch,
    )


def by_window(
    index: Index,
    name: str | None,
    window: Sequence[tuple[int, int]],
    stretch: tuple[float, float] | None,
    report: Progress | None,
) -> Picture:
    """The window of one array that ranges of its last dimensions mean."""
    from periplus.cli.output.window import Picture, each

    if name is None:
        raise click.UsageError("--window counts the pixels of one array: name it with --array.")
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
    return Picture(
        values=values,
        dims=source.dims,
        transform=shifted(index, source, span),
        crs=source.georeference.crs if source.georeference else None,
        nodata=kept.get("_FillValue"),
        bands=tuple(str(names[band]) for band in chosen or () if band < len(names)),
        attributes=kept,
        stretch=stretch,
    )


def of_bands(source: Array, chosen: list[int] | None) -> dict[str, Any]:
    """The attributes of an array, those with a value for each band cut to the bands chosen."""
    count = source.shape[source.dims.index("bands")] if "bands" in source.dims else None
    return {
        name: [value[band] for band in chosen]
        if chosen is not None and isinstance(value, list | tuple) and len(value) == count
        else value
        for name, value in source.attributes.items()
    }


def shifted(index: Index, source: Array, span: dict[str, tuple[int, int]]) -> Transform | None:
    """The transform of the window's own pixels."""
    from periplus.model import affine

    finest = index.table.catalog.levels(source.pyramid)[0]
    place = next((a for a in (source, finest) if a.georeference is not None and a.georeference.transform), None)
    if place is None or place.georeference is None or place.georeference.transform is None or "x" not in span:
        return None
    down, across = (place.shape[i] / source.shape[i] for i in (source.dims.index("y"), source.dims.index("x")))
    (row, _), (column, _) = span["y"], span["x"]
    return affine.shifted(affine.scaled(place.georeference.transform, down, across), row, column)
