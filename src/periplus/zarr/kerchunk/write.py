"""An index as kerchunk references: JSON of Zarr v2 or v3, or a Parquet directory of Zarr v2."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import IO, TYPE_CHECKING, Any

from periplus.errors import FormatError
from periplus.limits import JSON_TEXT, json_allowance, json_cost, json_parts
from periplus.model import Array, Shape
from periplus.policy import canonical, folder_of, storable
from periplus.table.parquet.sinks import sink
from periplus.table.stored_form import is_json_references
from periplus.table.target import check_file
from periplus.table.templates import expanded
from periplus.zarr.codecs.translate import NotRepresentableError
from periplus.zarr.description.metadata import CODECS, Codecs, Leaf, layout, only_image
from periplus.zarr.description.slabs import Slab, slabs
from periplus.zarr.kerchunk.documents import (
    check_representable,
    consolidated,
    documents_of,
    label_rows,
    v2_array,
    v2_labels,
    v3_array,
)
from periplus.zarr.kerchunk.extension import BASE, KEY, pack_files, to_text
from periplus.zarr.kerchunk.references import CODE, is_json

if TYPE_CHECKING:
    from periplus.fetch import Fetch
    from periplus.table.table import Table

RECORD_SIZE = 100_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KerchunkDescription:
    """The metadata of an index as kerchunk references, without the references themselves."""

    documents: Mapping[str, Mapping[str, Any]]
    """Metadata by key, consolidated."""
    arrays: Mapping[str, Array]
    """Arrays to write references of, by path."""
    labels: Mapping[str, Leaf]
    """Labels, whose chunks are inline, by path."""
    zarr_format: int
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Arrays that are not written, and why."""
    overrides: Mapping[str, str] = field(default_factory=dict)
    """Values of the templates of a portable index at the time of writing."""

    def rows(self, table: Table) -> Iterator[tuple[str, Shape, Iterable[Slab]]]:
        """The path, grid and chunks of all labels and arrays."""
        for path, leaf in self.labels.items():
            yield path, leaf.grid, [label_rows(leaf)]
        for path, array in self.arrays.items():
            yield path, array.grid, slabs(table, array)


def write_kerchunk(
    table: Table,
    target: str,
    *,
    fetch: Fetch,
    form: str | None = None,
    zarr_format: int = 2,
    codecs: Codecs = "all",
    portable: bool = False,
    base: str = "",
    skip_unsupported: bool | Collection[str] = (),
    record_size: int = RECORD_SIZE,
) -> KerchunkDescription:
    """Write kerchunk references; returns their metadata, and which arrays were left out.

    JSON where the target's name ends in `.json` (or `form` is `json`), else a Parquet directory, which supports
    `zarr_format=2` only. `codecs` are those that readers are expected to have: stock Zarr (`standard`), also the five
    of imagery tools (`imagery`), also ours (`all`). An array that cannot be represented is an error that names it,
    unless `skip_unsupported` names it or is True. `portable` writes URLs as `{{base}}name`, where the base is the
    folder that all sources share; a reader sets its own with `template_overrides`, and `base` is the default in a JSON
    index.
    """
    table = expanded(table)
    url = canonical(target)
    if zarr_format not in (2, 3):
        raise ValueError(f"zarr_format is 2 or 3, not {zarr_format!r}")
    if codecs not in CODECS[1:]:
        raise ValueError(f"codecs are {', '.join(CODECS[1:])}, not {codecs!r}")
    if form not in (None, "json", "parquet"):
        raise ValueError(f"form is json or parquet, not {form!r}")
    if base and not portable:
        raise ValueError("base= has no effect without portable=True, which writes URLs relative to it")
    as_json = form == "json" or (form is None and is_json(url))
    if zarr_format == 3 and not as_json:
        raise ValueError(
            "kerchunk Parquet is defined for Zarr v2 only, and other readers would return the fill value for every "
            "chunk of Zarr v3: use zarr_format=2, or zarr_format=3 with a target that ends in .json"
        )
    if as_json:
        check_file(url, "kerchunk references in JSON", is_json_references, fetch=fetch, sources=table.files)
    urls, folder = named_urls(table.files.path, fetch.keep_query, portable=portable)
    image = only_image(table.catalog, len(urls))
    description = describe(
        table,
        zarr_format=zarr_format,
        codecs=codecs,
        skip_unsupported=skip_unsupported,
        source=None if image is None else urls[image],
    )
    if as_json:
        with sink(url, fetch) as file:
            packed = to_text(pack_files(table.files, urls, folder=folder))
            _write_json(file, table, description, urls, _base(folder, folder_of(url), base), packed)
    else:
        from periplus.zarr.kerchunk.parquet import write_parquet

        write_parquet(url, table, description, urls, folder=folder, fetch=fetch, record_size=record_size)
    return replace(description, overrides={} if folder is None else {"base": folder})


def _base(folder: str | None, own: str, given: str) -> str | None:
    """The template `base` of a portable JSON index: `given`, or the folder of the sources relative to the index.

    None where that is not below the index: readers then have to set it.
    """
    if folder is None or given:
        return given or None
    return folder.removeprefix(own) if folder.startswith(own) else None


def describe(
    table: Table,
    *,
    zarr_format: int,
    codecs: Codecs,
    skip_unsupported: bool | Collection[str],
    source: str | None = None,
) -> KerchunkDescription:
    """All metadata, and the arrays it is of; FormatError names the arrays that cannot be represented."""
    zarr_layout = layout(table.catalog, codecs="all", source=lambda: source)
    leaves: dict[str, Mapping[str, Any]] = {}
    arrays: dict[str, Array] = {}
    skipped: dict[str, str] = {}
    for path, leaf in zarr_layout.leaves.items():
        if leaf.array is None:
            continue
        try:
            check_representable(leaf, leaf.array, codecs)
            leaves[path] = v2_array(leaf, leaf.array, codecs) if zarr_format == 2 else v3_array(leaf)
            arrays[path] = leaf.array
        except NotRepresentableError as error:
            skipped[path] = error.message
    for path, array in list(arrays.items()):
        why = _unrepresentable_parts(table, array)
        if why is not None:
            skipped[path] = why
            del arrays[path], leaves[path]
    refused = [name for name in skipped if skip_unsupported is not True and name not in (skip_unsupported or ())]
    if refused:
        reasons = "; ".join(f"{name}: {skipped[name]}" for name in refused[:8])
        more = f" and {len(refused) - 8} more" if len(refused) > 8 else ""
        raise FormatError(
            f"kerchunk of Zarr v{zarr_format} cannot represent {reasons}{more} (skip_unsupported=True skips them)"
        )
    labels = {path: leaf for path, leaf in zarr_layout.leaves.items() if leaf.array is None}
    leaves |= {path: v2_labels(leaf) if zarr_format == 2 else v3_array(leaf) for path, leaf in labels.items()}
    documents = consolidated(documents_of(zarr_layout, leaves, zarr_format=zarr_format), zarr_format=zarr_format)
    return KerchunkDescription(
        documents=documents, arrays=arrays, labels=labels, zarr_format=zarr_format, skipped=skipped
    )


def _unrepresentable_parts(table: Table, array: Array) -> str | None:
    """Why chunks of several parts cannot be represented; None where they can."""
    if len(table.files) == 0 or table.document.parts.get(array.name, 1) == 1:
        return None
    try:
        for _ in slabs(table, array):
            continue
    except NotRepresentableError as error:
        return error.message
    return None


_SPECIAL = re.compile("[?@;=%]")
"""In URLs that may carry a user name or parameters."""


def named_urls(
    paths: Sequence[str], keep_query: Collection[str] = (), *, portable: bool
) -> tuple[list[str], str | None]:
    """URLs as the index writes them, and the folder that `{{base}}` stands for in those of a portable one."""
    plain = [storable(path, keep_query) if _SPECIAL.search(path) else path for path in paths]
    template = next((path for path in plain if CODE.search(path)), None)
    if template is not None:
        raise FormatError(f"the URL {template!r} contains template syntax, which readers would expand")
    if not portable or not plain:
        return plain, None
    folder = _common(plain)
    braces = next((path for path in plain if "{" in path or "}" in path), None)
    if braces is not None:
        raise FormatError(f"the URL {braces!r} has braces, which cannot be combined with a template")
    return [BASE + path.removeprefix(folder) for path in plain], folder


def _common(paths: Sequence[str]) -> str:
    """The longest common folder of all paths; FormatError where there is none."""
    low, high = min(paths), max(paths)
    size = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    shared = low[:size].rpartition("/")[0] + "/"
    if shared.endswith("://") or shared == "/":
        raise FormatError("a portable index has all its sources under one folder")
    return shared


# --- JSON -----------------------------------------------------------------------------------------------------------


def _write_json(
    file: IO[bytes],
    table: Table,
    description: KerchunkDescription,
    urls: Sequence[str],
    base: str | None,
    files: Sequence[str],
) -> None:
    head: dict[str, Any] = {"version": 1}
    if base is not None:
        head["templates"] = {"base": base}
    structure, length, width = 0, 0, JSON_TEXT

    def put(text: str) -> None:
        nonlocal structure, length, width
        more, wide = json_parts(text)
        structure, length, width = structure + more, length + len(text), max(width, wide)
        # Do not write what would be refused when it is opened.
        whole = json_allowance(table.limits, what="the index")
        whole.take(structure + length * width)
        file.write(text.encode())

    put(f'{json.dumps(head)[:-1]}, "refs": {{')
    comma = "\n"
    for lines in _lines(table, description, urls):
        if lines:
            put(comma + ",\n".join(lines))
            comma = ",\n"
    put(f'\n}}, "{KEY}": {json.dumps(files)}}}\n')


def _lines(table: Table, description: KerchunkDescription, urls: Sequence[str]) -> Iterator[list[str]]:
    def text(value: Any) -> str:
        return json.dumps(value, allow_nan=False)

    memory = json_allowance(table.limits, what="the metadata of all arrays and groups")
    for key, document in description.documents.items():
        encoded = text(document)
        memory.take(json_cost(encoded))
        yield [f"{text(key)}: {text(encoded)}"]
    quoted = [text(url) for url in urls]
    for path, _, rows in description.rows(table):
        for slab in rows:
            yield _references(path, slab, description.zarr_format, quoted)


def _references(path: str, slab: Slab, zarr_format: int, quoted: Sequence[str]) -> list[str]:
    refs, first = slab.refs, slab.first
    starts = first[:-1]
    prefix = json.dumps(path)[:-1] + ("/c." if zarr_format == 3 else "/")
    keys = [f'{prefix}{".".join(place)}"' for place in zip(*(map(str, c.tolist()) for c in refs.chunk[:, starts]))]
    if not len(refs.chunk):
        keys = [json.dumps(f"{path}/c" if zarr_format == 3 else f"{path}/0")] * len(starts)
    files = [0] * len(slab) if refs.file is None else refs.file[starts].tolist()
    offsets, lengths = refs.offset.tolist(), refs.length.tolist()
    lines = []
    for key, file, row, stop in zip(keys, files, starts.tolist(), first[1:].tolist()):
        data = refs.inline_bytes(row)
        if data is not None:
            lines.append(f'{key}: "base64:{base64.b64encode(data).decode()}"')
        elif stop - row == 1:
            lines.append(f"{key}: [{quoted[file]}, {offsets[row]}, {lengths[row]}]")
        else:
            ranges = ", ".join(f"[{offsets[n]}, {lengths[n]}]" for n in range(row, stop))
            lines.append(f"{key}: [{quoted[file]}, [{ranges}]]")
    return lines
