"""Opens kerchunk references, JSON or a Parquet directory, as a table like any other index."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from periplus.errors import FormatError, MissingError, PeriplusError, StaleError
from periplus.limits import JSON_TEXT, Limits, json_allowance, json_cost
from periplus.model import Catalog, Refs
from periplus.parse.zarr import nodes_of
from periplus.parse.zarr.documents import NAMES
from periplus.policy import Policy, canonical, resolve
from periplus.table.document.document import document_for
from periplus.table.memory import MemoryRows
from periplus.table.table import Table
from periplus.zarr.kerchunk.catalog import catalog_of, parse_nodes
from periplus.zarr.kerchunk.columns import Urls, by_array, columns
from periplus.zarr.kerchunk.extension import REPLACED, from_text, unpack_files
from periplus.zarr.kerchunk.references import Reference, expand, filler, is_json, parse
from periplus.zarr.kerchunk.rows import RecordRows, read_metadata, sizes_of

if TYPE_CHECKING:
    from periplus.fetch import Fetch


def open_kerchunk(
    url: str,
    *,
    fetch: Fetch,
    limits: Limits | None = None,
    allow: Iterable[str] = (),
    policy: Policy | None = None,
    template_overrides: Mapping[str, str] | None = None,
    skip_unsupported: bool | Collection[str] = (),
    form: str | None = None,
) -> Table:
    """An index that kerchunk, VirtualiZarr, osml-imagery-io or we wrote, as JSON or as a Parquet directory.

    It may access sources in its own folder and under the prefixes of `allow`; relative references start at its folder.
    `template_overrides` fill the literal templates of its URLs. Arrays that are not read (objects, unknown codecs) are
    refused by name; `skip_unsupported` names those to skip, or is True for all of them.
    `form` is `json` or `parquet`, by default as the ending of the URL says.
    """
    limits = limits or Limits()
    plain = canonical(url)
    rule = policy or Policy.beside(plain.removesuffix("/"), allow=allow)
    overrides = dict(template_overrides or {})
    given = skip_unsupported if isinstance(skip_unsupported, bool) else frozenset(skip_unsupported)
    asked = _OpenRequest(
        url=plain, fetch=fetch, limits=limits, policy=rule, overrides=overrides, skip_unsupported=given
    )
    try:
        as_json = is_json(plain) if form is None else form == "json"
        return _open_json(asked) if as_json else _open_parquet(asked)
    except PeriplusError as error:
        raise error.at(url=plain) from error.__cause__


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _OpenRequest:
    """Which index is to be opened, and how."""

    url: str
    fetch: Fetch
    limits: Limits
    policy: Policy
    overrides: Mapping[str, str]
    skip_unsupported: bool | frozenset[str]
    write: str | None = None
    """The write of the directory that is expected there, where one is opened again."""

    def table(self, catalog: Catalog, rows: Any, *, url: str, parts: Mapping[str, int], reopen: Any = None) -> Table:
        document = document_for(catalog, parts=parts)
        return Table(document, rows, url=url, policy=self.policy, limits=self.limits, reopen=reopen)


# --- JSON -----------------------------------------------------------------------------------------------------------


def _open_json(asked: _OpenRequest) -> Table:
    url, fetch, limits = asked.url, asked.fetch, asked.limits
    document = parse(_whole(url, fetch, limits), url=url, limits=limits)
    references = expand(document, overrides=asked.overrides, limits=limits)
    documents = nodes_of(_documents(references, fetch, limits, url))
    if not documents:
        raise FormatError("this JSON file has no kerchunk references: no .zgroup, .zarray or zarr.json")
    nodes = parse_nodes(documents, limits=limits, skip_unsupported=asked.skip_unsupported)
    arrays = nodes.arrays
    keys = by_array((key for key in references if key.rpartition("/")[2] not in NAMES), arrays, frozenset(nodes.others))
    raw = from_text(document)
    known = None
    if raw is not None:
        known = unpack_files(raw, filler(document.get("templates"), asked.overrides), url=url, limits=limits)
    urls, whole = Urls(known), _whole_files(references, keys, fetch, url)
    refs = {
        path: columns(arrays[path], held, references, urls, lambda target: whole[target]) for path, held in keys.items()
    }
    catalog, used = catalog_of(nodes, refs.get, partial(_first_chunk, references), limits)
    held = {arrays[path].array.name: one for path, one in refs.items() if path not in used}
    held = {name: one for name, one in held.items() if name in catalog.arrays}
    rows = MemoryRows(refs=held, sources=urls.files(whole), count=sum(map(len, held.values())))
    return asked.table(catalog, rows, url=url, parts=_most_parts(held))


def _most_parts(refs: Mapping[str, Refs]) -> dict[str, int]:
    return {name: int(one.part.max()) + 1 for name, one in refs.items() if one.part is not None and one.part.any()}


def _whole(url: str, fetch: Fetch, limits: Limits) -> bytes:
    async def read() -> bytes:
        source = await fetch.head(url)
        # Longer text would exceed the budget of the JSON parser.
        size = limits.check("the size of the index", source.size or 0, limits.memory_bytes // (2 * JSON_TEXT))
        return (await fetch.read(url, 0, size, expect=source))[0]

    return fetch.run(read())


def _documents(references: Mapping[str, Reference], fetch: Fetch, limits: Limits, url: str) -> dict[str, Any]:
    """The metadata documents by key; those stored in files are fetched."""
    documents = {}
    memory = json_allowance(limits, what="the metadata of all arrays and groups")
    for key, reference in references.items():
        if key.rpartition("/")[2] not in NAMES:
            continue
        text = _fetched(key, reference, fetch, limits, url) if isinstance(reference, list) else reference
        memory.take(json_cost(text))
        try:
            documents[key] = parse(text, limits=limits)
        except FormatError as error:
            error.message = f"{key}: {error.message}"
            raise
    return documents


def _fetched(key: str, reference: list[Any], fetch: Fetch, limits: Limits, url: str) -> bytes:
    target = resolve(url, reference[0])
    if len(reference) == 1:
        return _whole(target, fetch, limits)
    if len(reference) != 3:
        raise FormatError(f"{key}: metadata in several byte ranges is unsupported")
    limits.check(f"{key}: its length", reference[2], limits.header_bytes)
    return fetch.run(fetch.read(target, reference[1], reference[2]))[0]


def _whole_files(
    references: Mapping[str, Reference], keys: Mapping[str, list[tuple[str, str]]], fetch: Fetch, url: str
) -> dict[str, int]:
    """Sizes of files that are referenced as a whole."""
    wanted = list(
        dict.fromkeys(
            str(one[0])
            for held in keys.values()
            for key, _ in held
            if isinstance(one := references[key], list) and len(one) == 1
        )
    )
    if not wanted:
        return {}
    return dict(zip(wanted, sizes_of(wanted, fetch, lambda target: resolve(url, target)), strict=True))


def _first_chunk(references: Mapping[str, Reference], path: str) -> tuple[str, bytes | None]:
    for key in (f"{path}/0", f"{path}/c/0", f"{path}/c.0"):
        data = references.get(key)
        if isinstance(data, bytes):
            return key, data
    return path, None


# --- Parquet --------------------------------------------------------------------------------------------------------


def _open_parquet(asked: _OpenRequest) -> Table:
    url, fetch, limits = asked.url, asked.fetch, asked.limits
    folder = url if url.endswith("/") else url + "/"
    try:
        root, source, own = read_metadata(folder, fetch, limits)
    except MissingError:
        raise MissingError("there is no kerchunk index: the folder has no .zmetadata", url=url) from None
    documents, record_size = root.get("metadata"), root.get("record_size")
    if not isinstance(documents, Mapping) or type(record_size) is not int:
        raise FormatError(".zmetadata: metadata and record_size are required; this may be a Zarr store")
    if asked.write not in (None, own.write):
        raise StaleError(REPLACED, url=url)
    nodes = parse_nodes(nodes_of(documents), limits=limits, skip_unsupported=asked.skip_unsupported)
    arrays = nodes.arrays
    names = {one.array.name: path for path, one in arrays.items()}
    rows = RecordRows(
        names,
        folder=folder,
        record_size=record_size,
        fill=filler({}, asked.overrides),
        fetch=fetch,
        limits=limits,
        declared=own,
        metadata=source,
    )
    rows.describe({one.array.name: one.array for one in arrays.values()})
    catalog, _ = catalog_of(nodes, lambda path: rows.find_inline(arrays[path].array), rows.first_bytes, limits)
    rows.describe(catalog.arrays)
    reopen = partial(_open_parquet, replace(asked, write=own.write))
    return asked.table(catalog, rows, url=folder.removesuffix("/"), parts=rows.parts, reopen=reopen)
