"""Index: the object users hold; every method is one call into a package below."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from os import PathLike, fspath
from textwrap import indent
from typing import TYPE_CHECKING, Any, Self

from periplus.arrays import Arrays, IndexArray, Progress
from periplus.errors import PeriplusError, guided
from periplus.limits import Limits
from periplus.model import BBox, Files

if TYPE_CHECKING:
    import pyarrow as pa
    import xarray as xr

    from periplus.conventions.proj.crs import CrsLike
    from periplus.fetch import Fetch
    from periplus.forms import WriteReport
    from periplus.harvest import Summary
    from periplus.rasters import Raster
    from periplus.read import SourceReport
    from periplus.table import Table
    from periplus.table.query.integrity import IndexReport
    from periplus.zarr.description.metadata import Codecs
    from periplus.zarr.store.store import IndexStore

Location = str | PathLike[str]
THUMBNAIL_BYTES = 4 << 20
"""Stored bytes that are read for the picture of an index in a notebook."""
THUMBNAIL_PIXELS = 256


class Index:
    """A table of the byte ranges of arrays, with methods to query and read it."""

    def __init__(
        self,
        table: Table,
        fetch: Fetch,
        limits: Limits,
        summary: Summary | None = None,
        report: WriteReport | None = None,
    ) -> None:
        self.table = table
        self.fetch = fetch
        self.limits = limits
        self.summary = summary
        """What indexing did; None for an index that was opened."""
        self.report = report
        """What `write` wrote; None for an index that was not opened by it."""
        self._token = uuid.uuid4().hex

    def __dask_tokenize__(self) -> tuple[str, str]:
        """A cheap token for dask, which would otherwise pickle all rows in memory."""
        return ("periplus.Index", self._token)

    @property
    def arrays(self) -> Arrays:
        return Arrays(self)

    @property
    def files(self) -> Files:
        """The sources, with their sizes, etags and errors."""
        return self.table.files

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Attributes of the root group, as in zarr: those of a single file, or what the files of an array share."""
        return self.table.catalog.attributes.get("", {})

    def __getitem__(self, name: str) -> IndexArray:
        return self.arrays[name]

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    def __contains__(self, name: object) -> bool:
        return name in self.table.catalog.arrays

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)

    def read(
        self,
        *,
        array: str | None = None,
        bbox: BBox | None = None,
        crs: CrsLike | None = None,
        level: int | None = None,
        resolution: float | tuple[float, float] | None = None,
        max_size: int | None = None,
        time: Any = None,
        bands: int | str | Sequence[int | str] | None = None,
        progress: Progress | None = None,
    ) -> Raster:
        """A window of `array`, or of the only image in the box and time range, at the coarsest sufficient level.

        `bbox` is (xmin, ymin, xmax, ymax) in `crs` (text, an EPSG number, a CRS of pyproj or rasterio; default: the
        image's own), `level` the level to read (0 is full resolution; default: the coarsest for `resolution`, which is
        in units of the image's CRS, and `max_size`, the longest side in pixels: every n-th pixel is taken where no
        level is that small, and the finest without both); `time` one moment, a pair or a slice; `bands` numbers that
        count from 1, or names. Of an image that only control points or RPCs locate, it is all pixels that may show the
        box, with `gcps` or `rpc`, and not `rectified`.
        """
        from periplus.conventions.proj.crs import in_degrees, reproject_bbox
        from periplus.rasters import Raster
        from periplus.read import read_raster

        window = read_raster(
            self.table,
            self.fetch,
            array=array,
            bbox=bbox,
            crs=_crs_of(bbox, crs),
            level=level,
            resolution=resolution,
            max_size=max_size,
            time=time,
            bands=bands,
            limits=self.limits,
            progress=progress,
            reproject_bbox=reproject_bbox,
            in_degrees=in_degrees,
        )
        return Raster.of(window)

    def sample(
        self,
        points: Any,
        *,
        crs: CrsLike | None = None,
        array: str | None = None,
        time: Any = None,
        bands: int | str | Sequence[int | str] | None = None,
        progress: Progress | None = None,
    ) -> pa.Table:
        """Values at points as an Arrow table: a row for each point and time, a column for each band.

        `points` are pairs of x and y, an array of shape (n, 2), or a GeoDataFrame or GeoSeries of points; `crs` is
        theirs (default: that of the GeoDataFrame, otherwise the image's own). `array` is an image; without it, the only
        image of the index, or in a collection every image at each point, named in the column `array`. `point` is the
        position in `points`. Values are those of the pixel that contains the point, as stored, and null outside the
        image and for nodata. Each stored chunk is read once, many at a time.
        """
        from periplus.conventions.proj.crs import crs_text, reproject_bbox, reproject_points
        from periplus.read.sample import PointRequest, points_of, sample_points
        from periplus.table import arrow_table

        pairs, own = points_of(points)
        columns = sample_points(
            self.table,
            self.fetch,
            PointRequest(points=pairs, crs=crs_text(own if crs is None else crs), time=time, bands=bands),
            array=array,
            limits=self.limits,
            progress=progress,
            reproject_bbox=reproject_bbox,
            reproject_points=reproject_points,
        )
        return arrow_table(columns)

    def to_xarray(self, *, group: str | None = None, level: int | None = None, **options: Any) -> xr.Dataset:
        """One image as a lazy Dataset: `xr.open_dataset(index, engine="periplus", ...)`, with its arguments.

        In an index of several images, `group` chooses one; `xr.open_datatree(index, engine="periplus")` has them all.
        """
        with guided():
            from periplus.engine.index.window import open_index

        return open_index(self, group=group, level=level, **options)

    def select(
        self,
        *,
        array: str | None = None,
        level: int | None = None,
        window: Sequence[tuple[int, int]] | None = None,
        bbox: BBox | None = None,
        crs: CrsLike | None = None,
        time: Any = None,
        footprints: bool = False,
    ) -> pa.Table:
        """The references of a selection as an Arrow table.

        `window` counts chunks; `bbox` is in `crs` (default: the images' own, if they share one); `footprints` adds the
        box of every chunk, in the CRS of its image. All chunks of an image that has only
        control points or RPCs are selected, or none.
        """
        from periplus.conventions.proj.crs import in_degrees, reproject_bbox

        return self.table.select(
            array=array,
            level=level,
            window=window,
            bbox=bbox,
            crs=_crs_of(bbox, crs),
            time=time,
            footprints=footprints,
            reproject=reproject_bbox,
            in_degrees=in_degrees,
        )

    def sql(self, query: str, parameters: Sequence[Any] = ()) -> pa.Table:
        """The result of one SELECT, run by DuckDB; the views are `chunks`, `files`, `arrays`, `placements` and `grid`.

        `files` has a column `url`, the absolute path, which hides a user column of that name. `array` and `offset` are
        keywords of SQL: write these columns in double quotes. `parameters` are the values of `?`.
        """
        return self.table.sql(query, parameters)

    def check(
        self, *, deep: bool = False, resume: Location | None = None, progress: Progress | None = None
    ) -> SourceReport:
        """Check that every source is unchanged: size, entity tag and time. No data are read.

        With `deep`, all data are read and compared with the checksums in the index, which it has if the files were
        indexed with `checksums=True`. `resume` is a local file that keeps the state of such a check, so that one that
        was interrupted continues; it is removed at the end.
        """
        from periplus.read import check_data, check_sources

        if resume is not None and not deep:
            raise ValueError("resume= has no effect without deep=True")
        if deep:
            state = None if resume is None else fspath(resume)
            return check_data(self.table, self.fetch, self.limits, resume=state, progress=progress)
        return check_sources(self.table, self.fetch, progress=progress)

    def check_index(self, *, progress: Progress | None = None) -> IndexReport:
        """Read every row of the index and compare it with what the index declares; no source is accessed.

        The report lists chunks outside their grid, duplicate rows, missing or unlisted parts, byte ranges past the end
        of their file, wrong file ids, encodings, counts and statistics, and damaged pages.
        """
        from periplus.table.query.integrity import check_table

        return check_table(self.table, progress=progress)

    def write(self, target: Location, *, form: str | None = None, **options: Any) -> Index:
        """Write this index elsewhere or in another form, and return it opened from there, with a `report`.

        The form is that of the target's name: `.parquet` (flat), `.duckdb`, `.json` (kerchunk references), `.icechunk`
        (an Icechunk repository), and a dataset folder for any other name. `form` overrides the name: `flat`, `dataset`,
        `duckdb`, `kerchunk` (JSON for a target that ends in `.json`, else a Parquet directory) or `icechunk`.

        Options of kerchunk are `zarr_format`, `codecs`, `portable`, `base` (JSON), `skip_unsupported` and `record_size`
        (Parquet); see `periplus.zarr.kerchunk.write`. Options of Icechunk are `branch`, `message`, `codecs`,
        `skip_unsupported` and `append`, which keeps what is there and adds what is new. An unknown option is a
        TypeError.

        The target may be anywhere; the index opened from there may access the same sources as this one.
        """
        from periplus.fetch.errors import system_errors
        from periplus.forms import write_index

        url = fspath(target)
        with system_errors(url):  # modules are loaded here, too
            table, report = write_index(self.table, url, fetch=self.fetch, limits=self.limits, form=form, **options)
        # Chunks that Icechunk copied are stored in the repository itself.
        fetch = self.fetch if report.commit is None else self.fetch.under(self.fetch.policy.including(f"{url}/"))
        return Index(table, fetch, self.limits, self.summary, report)

    def store(self, *, codecs: Codecs = "standard") -> IndexStore:
        """This index as a read-only Zarr v3 store, for zarr-python, xarray, dask and whatever else reads Zarr.

        Chunks keep their stored bytes if `codecs` can express them: those of stock Zarr (`standard`), also the five of
        imagery tools (`imagery`), also ours (`all`), or none. All other chunks are decoded by the store.
        """
        with guided():
            from periplus.zarr.store.store import IndexStore

        return IndexStore(self.table, self.fetch, limits=self.limits, codecs=codecs)

    def close(self) -> None:
        """Close connections and files; the index can still be used and opens them again."""
        self.table.close()
        self.fetch.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        arrays, rows, files = self.arrays, self.table.rows, self.table.file_count
        first = f"<periplus index: {len(arrays):,} arrays, {rows:,} references, {files:,} files>"
        return first + (indent(f"\n{arrays!r}", "  ") if arrays else "")

    def _repr_html_(self) -> str:
        shown = _thumbnail(self)
        return f"<div><pre>{escape(repr(self))}</pre>{shown}</div>"


def _thumbnail(index: Index) -> str:
    """The picture of the first image, if reading it is cheap; otherwise an empty text."""
    from periplus.read.choose import Images

    try:
        name = next(iter(Images(index.table.catalog)), None)
        if name is None:
            return ""
        image = index.table.catalog.levels(name)[-1]
        times = {"time": index.table.catalog.coordinates_of(image)["time"].values[-1]} if "time" in image.dims else {}
        window = [(n - 1, n) if dim == "time" else (0, n) for dim, n in zip(image.dims, image.grid, strict=True)]
        if int(index.table.refs(image.name, window).length.sum()) > THUMBNAIL_BYTES:
            return ""
        return index.read(array=image.name, max_size=THUMBNAIL_PIXELS, **times).to_html_image()
    except (PeriplusError, ValueError, KeyError):
        return ""  # a description must never fail


def _crs_of(bbox: BBox | None, crs: CrsLike | None) -> str | None:
    """The CRS of a box as text; ValueError for a CRS without a box."""
    from periplus.conventions.proj.crs import crs_text

    if crs is not None and bbox is None:
        raise ValueError("crs= has no effect without bbox=, the box that is given in it")
    return crs_text(crs)
