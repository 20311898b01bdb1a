"""Index: the object users hold; every method is one call into a package below."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike, fspath
from textwrap import indent
from typing import TYPE_CHECKING, Any, Self

from periplus.arrays import Arrays, IndexArray, Progress
from periplus.errors import guided
from periplus.limits import Limits, given_limits
from periplus.model import BBox, Files

if TYPE_CHECKING:
    import pyarrow as pa

    from periplus.conventions.proj.crs import CrsLike
    from periplus.fetch import Fetch
    from periplus.forms import WriteReport
    from periplus.harvest import Summary
    from periplus.harvest.stac import Assets
    from periplus.read import Raster, SourceReport
    from periplus.table import Table
    from periplus.table.query.integrity import IndexReport
    from periplus.zarr.description.metadata import Codecs
    from periplus.zarr.store.store import IndexStore

Location = str | PathLike[str]


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
        resolution: float | tuple[float, float] | None = None,
        max_size: int | None = None,
        time: Any = None,
        bands: int | str | Sequence[int | str] | None = None,
        progress: Progress | None = None,
    ) -> Raster:
        """A window of `array`, or of the only image in the box and time range, at the coarsest sufficient level.

        `bbox` is (xmin, ymin, xmax, ymax) in `crs` (text, an EPSG number, a CRS of pyproj or rasterio; default: the
        image's own), `resolution` in units of the image's CRS, `max_size` the longest side in pixels (every n-th pixel
        is taken where no level is that small); `time` one moment, a pair or a slice; `bands` numbers that count from
        1, or names.
        """
        from periplus.conventions.proj.crs import in_degrees, reproject_bbox
        from periplus.read import read_raster

        return read_raster(
            self.table,
            self.fetch,
            array=array,
            bbox=bbox,
            crs=_crs_of(bbox, crs),
            resolution=resolution,
            max_size=max_size,
            time=time,
            bands=bands,
            limits=self.limits,
            progress=progress,
            reproject_bbox=reproject_bbox,
            in_degrees=in_degrees,
        )

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


def _crs_of(bbox: BBox | None, crs: CrsLike | None) -> str | None:
    """The CRS of a box as text; ValueError for a CRS without a box."""
    from periplus.conventions.proj.crs import crs_text

    if crs is not None and bbox is None:
        raise ValueError("crs= has no effect without bbox=, the box that is given in it")
    return crs_text(crs)


def index(
    urls: Location | Iterable[Location],
    *,
    to: Location | None = None,
    arrange: str = "auto",
    dim: str | None = None,
    pattern: str | None = None,
    coordinate: str = "auto",
    duplicates: str = "error",
    order: str = "given",
    skip_misfits: bool = False,
    assets: Assets = None,
    append: bool = False,
    refresh: str = "check",
    sidecars: bool = True,
    checksums: bool = False,
    concurrency: int = 256,
    form: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    keep_query: str | Iterable[str] = (),
    limits: Limits | None = None,
    progress: Callable[..., None] | None = None,
) -> Index:
    """Index files in place.

    `urls` is a file, a glob, a folder or bucket, a text file of URLs, STAC items (JSON or GeoParquet), or several of
    these; `assets` chooses among the assets of STAC items. With `to` the index is written there: as `.parquet` (one
    file), `.duckdb` or a folder (a dataset that can grow); `form` overrides the name. Without `to`, the index stays in
    memory.

    `arrange` is `collect` (each file its own group), `stack` (a new leading dimension), `mosaic` (files of one grid, or
    DTED cells, side by side) or `auto`: a stack if all files have the same grid and each has a time, or a label from
    `pattern`, of its own; otherwise a collection. The arrays of a single image, a stack or a mosaic are `0/data` (full
    resolution), `1/data` …; in a collection they are in a group that has the path of the file, below the folder that
    all files share and without its extension: `2021/scene/0/data`.

    `pattern` (`scene_{time:%Y%m%d}`, or a regular expression with a named group) reads the time of each file from its
    name. A stack is along `dim`, by default `time`, whose labels come from the pattern, or from `coordinate`:
    `pattern`, `datetime` (the files' own) or `order`. `duplicates` decides between files of one label, or that overlap:
    `error`, `first`, `last`, `first-valid`, `last-valid` or `keep`; `order` is that of the files of a mosaic: `given`,
    `name` or `time`. With `skip_misfits` files that do not fit, or do not match the pattern, are skipped. Skipped files
    are rows of `files` with the reason. An option, or a field of the pattern, that would have no effect is a
    ValueError.

    Files that are in the index at `to`, or were read by an interrupted run, are not read again: `refresh` is
    `check` (ask whether they changed), `never` (trust it) or `always`. The index then holds the files named, arranged
    by the options of this call. With `append` it keeps those it had as well, and options of the arrangement that are
    not given are those the index was made with. With `sidecars=False` R-sets and world files are not looked for; with
    `checksums` all data are read once, and a checksum of each byte range is recorded, which every read compares;
    `concurrency` is how many headers are read at once; `progress` is called with (done, total or None, failed).
    `keep_query` names parameters of URLs that may be stored: others than well-known ones are refused, since they may
    be secrets.
    """
    from periplus.fetch import Fetch
    from periplus.harvest import index_into

    limits = given_limits(limits)
    if not isinstance(urls, Iterable | PathLike):
        raise TypeError(f"urls is a path or URL, or several of them, not {urls!r}")
    fetch = Fetch(storage_options=storage_options, keep_query=keep_query)
    listed = [fspath(urls)] if isinstance(urls, str | PathLike) else [fspath(url) for url in urls]
    target = None if to is None else fspath(to)
    try:
        table, summary = index_into(
            listed,
            to=target,
            fetch=fetch,
            arrange=arrange,
            limits=limits,
            form=form,
            dim=dim,
            pattern=pattern,
            coordinate=coordinate,
            duplicates=duplicates,
            order=order,
            skip_misfits=skip_misfits,
            assets=assets,
            refresh=refresh,
            append=append,
            concurrency=concurrency,
            sidecars=sidecars,
            checksums=checksums,
            progress=progress,
        )
    except BaseException:
        fetch.close()  # otherwise the traceback keeps its thread and connections
        raise
    if table.policy.prefixes is not None:  # files were added to an index that others may have written
        fetch = fetch.under(table.policy)
    return Index(table, fetch, limits, summary)


def open(
    index_url: Location,
    *,
    allow: str | Sequence[str] = (),
    trust: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    keep_query: str | Iterable[str] = (),
    limits: Limits | None = None,
    **options: Any,
) -> Index:
    """Open an index of any form: Parquet, DuckDB, kerchunk references or an Icechunk repository.

    It may access sources under its own folder, and those under the prefixes in `allow`. `trust` allows a DuckDB file to
    be opened: use it only for files from writers you trust. `keep_query` names parameters of its URLs that may be
    stored when it is written elsewhere.

    Options of kerchunk references are `template_overrides`, which replace the templates of their URLs (what is given
    there may be accessed), and `skip_unsupported`. Options of Icechunk are `branch`, `tag` or `snapshot`, and
    `skip_unsupported`: names of arrays to skip, or True for all that are unsupported. An unknown option is a TypeError.
    """
    from periplus.forms.location import open_location

    opened = open_location(
        fspath(index_url),
        allow=allow,
        trust=trust,
        storage_options=storage_options,
        keep_query=keep_query,
        limits=limits,
        **options,
    )
    return Index(opened.table, opened.fetch, opened.limits)
