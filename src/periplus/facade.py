"""Index: what users hold. Every method is one call into a room below."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike, fspath
from textwrap import indent
from typing import TYPE_CHECKING, Any, Self

from periplus.arrays import Arrays, IndexArray, Progress
from periplus.errors import guided
from periplus.limits import Limits
from periplus.model import BBox, Files

if TYPE_CHECKING:
    import pyarrow as pa

    from periplus.conventions.proj.crs import CrsLike
    from periplus.fetch import Fetch
    from periplus.harvest import Summary
    from periplus.harvest.stac import Assets
    from periplus.read import Raster, Report
    from periplus.table import Table
    from periplus.table.query.integrity import IndexReport
    from periplus.zarr.description.metadata import Codecs
    from periplus.zarr.icechunk.write import Committed
    from periplus.zarr.store.store import IndexStore

Location = str | PathLike[str]


class Index:
    """A table of where the bytes of arrays lie, with the means to query and to read it."""

    def __init__(self, table: Table, fetch: Fetch, limits: Limits, summary: Summary | None = None) -> None:
        self.table = table
        self.fetch = fetch
        self.limits = limits
        self.summary = summary
        """What indexing did; None for an index that was opened."""
        self.written: Committed | None = None
        """What was last committed to Icechunk."""
        self.left_out: Mapping[str, str] = {}
        """Arrays that writing kerchunk references or to Icechunk did without, and why."""
        self._token = uuid.uuid4().hex

    def __dask_tokenize__(self) -> tuple[str, str]:
        """A name for dask's chunks that costs nothing: without it, dask would pickle all rows held in memory."""
        return ("periplus.Index", self._token)

    @property
    def arrays(self) -> Arrays:
        return Arrays(self)

    @property
    def files(self) -> Files:
        """The sources, with their sizes, etags and errors."""
        return self.table.files

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
        """A window of `array`, or of the only image of place and time, at the coarsest level with that resolution.

        `bbox` is (xmin, ymin, xmax, ymax) in `crs` (text, an EPSG number, a CRS of pyproj or rasterio; default: the
        image's own), `resolution` in units of the image's CRS, `max_size` the longest side in pixels (every n-th pixel
        is taken where no level is that small); `time` one moment, a pair or a slice; `bands` positions or names.
        """
        from periplus.conventions.proj.crs import crs_text, reproject_bbox
        from periplus.read import read_raster

        return read_raster(
            self.table,
            self.fetch,
            array=array,
            bbox=bbox,
            crs=crs_text(crs),
            resolution=resolution,
            max_size=max_size,
            time=time,
            bands=bands,
            limits=self.limits,
            progress=progress,
            reproject_bbox=reproject_bbox,
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
        box of every chunk, in the CRS of its image. An image that only control points or RPCs place is selected whole.
        """
        from periplus.conventions.proj.crs import crs_text, reproject_bbox

        return self.table.select(
            array=array,
            level=level,
            window=window,
            bbox=bbox,
            crs=crs_text(crs),
            time=time,
            footprints=footprints,
            reproject=reproject_bbox,
        )

    def sql(self, query: str, parameters: Sequence[Any] = ()) -> pa.Table:
        """The answer of DuckDB to one SELECT; the views are `chunks`, `files`, `arrays`, `placements` and `grid`.

        `files` has a column `url`, the path made absolute, which hides a column of yours with that name. `array` and
        `offset` are words of SQL too: write these columns in double quotes. `parameters` are the values of `?`.
        """
        return self.table.sql(query, parameters)

    def check(self, *, progress: Progress | None = None) -> Report:
        """Ask every source whether it is still what was indexed: size, entity tag and time; no data are read."""
        from periplus.read import check_sources

        return check_sources(self.table, self.fetch, progress=progress)

    def check_index(self, *, progress: Progress | None = None) -> IndexReport:
        """Read every row of the index and compare it with what the index declares; no source is accessed.

        Found are chunks outside their grid, rows that come twice, parts that are missing or that nothing lists, byte
        ranges past the end of their file, wrong file ids, encodings, counts and statistics, and damaged pages.
        """
        from periplus.table.query.integrity import check_table

        return check_table(self.table, progress=progress)

    def write(self, target: Location, *, form: str | None = None, **options: Any) -> Index:
        """Write this index as `.parquet` (flat), `.duckdb`, or a folder (dataset), and return it opened from there.

        It may go anywhere, and still reaches only the sources it could reach before. `.icechunk` commits it to an
        Icechunk repository; `written` then tells what was copied, and the options are `branch`, `message`, `codecs`,
        `leave_out` and `append`, which keeps what is there and adds what is new. `.json`, or `form="kerchunk"` with any
        name, writes kerchunk references, JSON or a Parquet directory; options are those of
        `periplus.zarr.kerchunk.write`: `zarr_format`, `codecs`, `portable`, `leave_out`, `record_size`.
        """
        from periplus.fetch.door import system_errors

        with system_errors(fspath(target)):  # modules are loaded here, too
            return self._write(target, form, options)

    def _write(self, target: Location, form: str | None, options: Mapping[str, Any]) -> Index:
        from periplus.policy import Policy
        from periplus.table import copy_table

        if form == "icechunk" or (form is None and is_icechunk(target)):
            with guided():
                from periplus.zarr.icechunk.write import write_icechunk

            self.written = write_icechunk(self.table, self.fetch, fspath(target), limits=self.limits, **options)
            self.left_out = self.written.left_out
            return self
        anywhere = self.fetch.under(Policy.everything())
        if form == "kerchunk" or (form is None and fspath(target).lower().endswith(".json")):
            from periplus.zarr.kerchunk.read import open_kerchunk
            from periplus.zarr.kerchunk.write import write_kerchunk

            said = write_kerchunk(self.table, fspath(target), fetch=anywhere, **options)
            table = open_kerchunk(
                fspath(target),
                fetch=anywhere,
                limits=self.limits,
                policy=Policy.everything(),
                template_overrides=said.overrides,
            )
            written = Index(table, self.fetch, self.limits, self.summary)
            written.left_out = said.left_out
            return written
        if options:
            raise TypeError(f"{', '.join(options)}: no options of this form")
        table = copy_table(self.table, fspath(target), fetch=anywhere, form=form)
        return Index(table, self.fetch, self.limits, self.summary)

    def store(self, *, codecs: Codecs = "standard") -> IndexStore:
        """This index as a read-only Zarr v3 store, for zarr-python, xarray, dask and whatever else reads Zarr.

        Chunks are handed out as they lie in the files where `codecs` can say how: those of stock Zarr (`standard`),
        also the five of imagery tools (`imagery`), also ours (`all`), or none. All others are decoded here.
        """
        with guided():
            from periplus.zarr.store.store import IndexStore

        return IndexStore(self.table, self.fetch, limits=self.limits, codecs=codecs)

    def close(self) -> None:
        """Let go of connections and descriptors; the index can still be used and will open them again."""
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


def is_icechunk(location: Location) -> bool:
    """Whether the name is that of an Icechunk repository."""
    return fspath(location).rstrip("/").endswith(".icechunk")


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
    siblings: bool = True,
    concurrency: int = 256,
    form: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    keep_query: str | Iterable[str] = (),
    limits: Limits | None = None,
    progress: Callable[..., None] | None = None,
) -> Index:
    """Index files where they lie.

    `urls` is a file, a glob, a folder or bucket, a text file of URLs, STAC items (JSON or GeoParquet), or several of
    these; `assets` chooses among the assets of STAC items. With `to` the index is written there: as `.parquet` (one
    file), `.duckdb` or a folder (a dataset that can grow; `form` says it whatever the name). Without, it stays in
    memory.

    `arrange` is `collect` (each file its own group), `stack` (a new leading dimension), `mosaic` (files of one grid, or
    DTED cells, side by side) or `auto`. `pattern` (`scene_{time:%Y%m%d}`, or a regular expression with a named group)
    reads the time of each file from its name. A stack is along `dim`, by default `time`, whose labels come from the
    pattern, or as `coordinate` says: `pattern`, `datetime` (the files' own) or `order`. `duplicates` decides between
    files of one label, or that overlap: `error`, `first`, `last`, `first-valid`, `last-valid` or `keep`; `order` says
    which file of a mosaic is the first: `given`, `name` or `time`. With `skip_misfits` files that do not fit, or do not
    match the pattern, are left out. Files that are left out are rows of `files` with the reason. An option, or a field
    of the pattern, that would have no effect is a ValueError.

    Files that the index at `to` knows, or that a run read which was interrupted, are not read again: `refresh` is
    `check` (ask whether they changed), `never` (trust it) or `always`. The index then holds the files named, arranged
    by the options of this call. With `append` it keeps those it had as well, and options of the arrangement that are
    not given are those the index was made with. With `siblings=False` R-sets and world files are not looked for;
    `concurrency` is how many headers are read at once; `progress` is called with (done, total or None, failed).
    `keep_query` names parameters of URLs that may be stored: others than well-known ones are refused, since they may
    be secrets.
    """
    from periplus.fetch import Fetch
    from periplus.harvest import index_into

    limits = limits or Limits()
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
            siblings=siblings,
            progress=progress,
        )
    except BaseException:
        fetch.close()  # the traceback would keep its thread and connections until it is collected
        raise
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
    """Open an index. It may reach sources under its own folder, and those under the prefixes in `allow`.

    `trust` lets a DuckDB file be opened: do so only with files whose writer you trust. An Icechunk repository is an
    index too: `branch`, `tag` or `snapshot` say which version, `leave_out` which arrays to do without. So are kerchunk
    references, as `.json` or as a Parquet directory; `template_overrides` fill their templates, and what is given there
    may be reached. `keep_query` names parameters of its URLs that may be stored when it is written elsewhere.
    """
    from periplus.fetch import Fetch
    from periplus.policy import Policy
    from periplus.table import home_of
    from periplus.zarr.kerchunk.recognise import open_index

    limits = limits or Limits()
    allowed = (allow,) if isinstance(allow, str) else tuple(allow)
    allowed += tuple(base for base in (options.get("template_overrides") or {}).values() if base)
    url = fspath(index_url)
    policy = Policy.beside(home_of(url), allow=allowed)
    fetch = Fetch(policy=policy, storage_options=storage_options, keep_query=keep_query)
    try:
        if is_icechunk(url):
            from periplus.zarr.icechunk.read import read_icechunk

            table = read_icechunk(url, fetch=fetch, limits=limits, **options)
        else:
            table = open_index(url, fetch=fetch, limits=limits, allow=allowed, trust=trust, **options)
    except BaseException:
        fetch.close()
        raise
    return Index(table, fetch, limits)
