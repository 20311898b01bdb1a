"""index and open: the functions that give an Index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from periplus.facade import Index, Location
from periplus.limits import Limits, given_limits

if TYPE_CHECKING:
    from periplus.harvest.stac import Assets


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
