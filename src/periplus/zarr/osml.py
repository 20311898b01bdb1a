"""The names of osml-imagery-io on our index: a parser, write_tile_index, and the file system that reads the result."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from periplus.errors import ConflictError, FormatError, MissingError
from periplus.fetch import Fetch
from periplus.harvest import index_into
from periplus.limits import Limits
from periplus.model import Catalog, Files
from periplus.policy import Policy, canonical
from periplus.table import Table, memory_table
from periplus.zarr.fsspec.filesystem import MultiReferenceFileSystem
from periplus.zarr.kerchunk.extension import BASE
from periplus.zarr.kerchunk.write import write_kerchunk
from periplus.zarr.store.store import IndexStore

__all__ = ["MultiReferenceFileSystem", "Parser", "write_tile_index"]

Location: TypeAlias = str | os.PathLike[str]
Locations: TypeAlias = Location | Sequence[Location]


class TileStore(IndexStore):
    """A Zarr store of one image."""

    portable = False
    """Whether its index is written with `{{base}}` for the folder of its files."""


class Parser:
    """Indexes one image, its overviews and R-sets; what it returns is a Zarr store, read with `zarr.open_group`.

    Both forms of osml-imagery-io work: `Parser()(url)`, and `Parser(local_paths=...)()`, which reads local files, and
    whose index refers to `url`, or, without one, to a folder that the reader names (a portable index). Several paths
    are the files of one R-set, full resolution first.
    """

    def __init__(
        self,
        local_paths: Locations | None = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.local_paths = None if local_paths is None else _listed(local_paths)
        self.storage_options, self.limits = storage_options, limits or Limits()

    def __call__(
        self,
        url: Locations | None = None,
        registry: object = None,  # noqa: ARG002 - what VirtualiZarr gives to parsers; we have our own stores
        *,
        downsampling_method: str | None = None,
    ) -> TileStore:
        """The image as a store; `downsampling_method` is kept as an attribute of its root."""
        urls = [] if url is None else _listed(url)
        paths = self.local_paths or urls
        if not paths:
            raise MissingError("neither local_paths nor a url was given")
        if self.local_paths and urls and len(urls) != len(paths):
            raise FormatError(f"{len(urls)} urls for {len(paths)} files")
        fetch = Fetch(storage_options=self.storage_options)
        table = self._indexed(paths, fetch)
        if downsampling_method is not None:
            root = {**table.catalog.attributes.get("", {}), "resampling_method": downsampling_method}
            table = _changed(table, replace(table.catalog, attributes={**table.catalog.attributes, "": root}), {})
        if self.local_paths and urls:
            table = _changed(table, table.catalog, _destinations(table.files.path, list(map(canonical, paths)), urls))
        store = TileStore(table, fetch, limits=self.limits, codecs="all", read_only=True)
        store.portable = bool(self.local_paths) and not urls
        return store

    def _indexed(self, paths: Sequence[str], fetch: Fetch) -> Table:
        first = paths[0]
        table, _ = index_into([first], fetch=fetch, arrange="collect", limits=self.limits)
        if len(paths) == 1 or set(map(canonical, paths)) <= set(table.files.path):
            return table  # R-sets next to their image are found by name
        levels = [table] + [
            index_into([path], fetch=fetch, arrange="collect", limits=self.limits)[0] for path in paths[1:]
        ]
        return _pyramid(levels)

    def __repr__(self) -> str:
        return f"periplus.zarr.osml.Parser(local_paths={self.local_paths!r})"


def write_tile_index(
    store: Any,
    output: Location,
    segments: Collection[str] | None = None,
    *,
    template_base: str | None = None,
    url_overrides: Mapping[str, str] | None = None,
    zarr_format: int = 2,
    skip_unsupported: bool | Collection[str] = (),
    **options: Any,
) -> Mapping[str, str]:
    """Write what a `Parser` returned, or an index, as kerchunk references; returns what was left out, and why.

    `output` that ends in `.json` is JSON, any other name a Parquet directory. `segments` are groups to keep, for
    example `["0", "2"]`. `template_base="{{base}}"` makes the index portable; `url_overrides` are other URLs for
    sources. Further options are those of `periplus.zarr.kerchunk.write.write_kerchunk`.
    """
    if template_base is not None and url_overrides:
        raise FormatError("template_base and url_overrides exclude each other")
    if template_base not in (None, BASE):
        raise FormatError(f"template_base is {BASE!r}, not {template_base!r}")
    table: Table = store.table
    catalog = table.catalog if segments is None else _kept(table.catalog, segments)
    if segments is not None or url_overrides:
        moved = {canonical(old): new for old, new in (url_overrides or {}).items()}
        unknown = sorted(set(moved) - set(table.files.path))
        if unknown:
            raise MissingError(f"url_overrides: the index has no source {unknown[0]!r}")
        table = _changed(table, catalog, moved)
    portable = template_base is not None or getattr(store, "portable", False)
    anywhere = store.fetch.under(Policy.everything())
    written = write_kerchunk(
        table,
        os.fspath(output),
        fetch=anywhere,
        zarr_format=zarr_format,
        portable=portable and not url_overrides,
        skip_unsupported=skip_unsupported,
        **options,
    )
    return written.skipped


def _listed(paths: Locations) -> list[str]:
    return [os.fspath(paths)] if isinstance(paths, str | os.PathLike) else [os.fspath(path) for path in paths]


def _destinations(found: Sequence[str], paths: Sequence[str], urls: Sequence[str]) -> dict[str, str]:
    """The URL of every file that was found; R-sets that were found by name are next to their image there too."""
    moved = dict(zip(paths, urls, strict=True))
    for path in found:
        if path not in moved:
            whole = path.startswith(paths[0])  # image.ntf.r1 of image.ntf, or image.r1 of image.r0
            old, new = (one if whole else os.path.splitext(one)[0] for one in (paths[0], urls[0]))
            moved[path] = new + path.removeprefix(old)
    return moved


def _kept(catalog: Catalog, segments: Collection[str]) -> Catalog:
    """The arrays of these groups, and the attributes of the groups."""

    def inside(name: str) -> bool:
        return any(name == group or name.startswith(f"{group}/") for group in segments)

    arrays = {name: array for name, array in catalog.arrays.items() if inside(name)}
    if not arrays:
        raise MissingError(f"there is no array in {', '.join(segments)}")
    return replace(
        catalog, arrays=arrays, attributes={k: v for k, v in catalog.attributes.items() if not k or inside(k)}
    )


def _changed(table: Table, catalog: Catalog, moved: Mapping[str, str]) -> Table:
    """The same rows under another catalog, their files perhaps elsewhere.

    Of a file elsewhere only the size is known: it has another time there, and another entity tag.
    """
    files = table.files
    stay = np.array([path not in moved for path in files.path], bool)
    files = replace(
        files,
        path=[moved.get(path, path) for path in files.path],
        etag=[etag if kept else None for etag, kept in zip(files.etag, stay.tolist(), strict=True)],
        last_modified=np.where(stay, files.last_modified, np.datetime64("NaT", "us")),
    )
    return memory_table(catalog, {name: table.refs(name) for name in catalog.arrays}, files)


def _pyramid(levels: Iterable[Table]) -> Table:
    """Full resolution of each table as one level of an image, in their order."""
    arrays, refs, files = {}, {}, None
    for level, table in enumerate(levels):
        array = table.catalog.arrays.get("0/data")
        if array is None:
            raise ConflictError(f"level {level} has no image")
        found = table.refs("0/data")
        first = 0 if files is None else len(files)
        name = f"{level}/data"
        arrays[name] = replace(array, name=name, level=level)
        own = found.file if found.file is not None else found.offset.astype("int32") * 0
        refs[name] = replace(found, file=(own + first).astype("int32"))
        files = table.files if files is None else Files.joined(files, table.files)
    assert files is not None
    return memory_table(Catalog(arrays=arrays), refs, files)
