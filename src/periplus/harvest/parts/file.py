"""The file format of a part: its columns, a JSON document about its files, and a checksum."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus import __version__
from periplus.errors import FormatError
from periplus.harvest.parts.part import COLUMNS, SPAN, FileFacts, HarvestPart
from periplus.limits import Limits
from periplus.model import Array, Catalog, Source
from periplus.parse.json import parse_json
from periplus.table.document.document import document_for, dump, load

MAGIC = b"PERIPART"
VERSION = 4


def write_part(part: HarvestPart, facts: Sequence[FileFacts], *, kind: str = "") -> bytes:
    """The part as bytes: magic, columns, a JSON document, its length, a checksum, magic.

    Parts that were scanned with different options have another `kind`; only those of the same kind are read.
    """
    body, where, at = [MAGIC], {}, len(MAGIC)
    for name, column in part.columns.items():
        data = np.ascontiguousarray(column, COLUMNS[name]).tobytes()
        where[name] = [at, len(column)]
        padding = b"\0" * (-len(data) % 8)
        body += [data, padding]
        at += len(data) + len(padding)
    head = {"version": VERSION, "software": __version__, "kind": kind, "columns": where}
    text = json.dumps(head | _written(part.arrays, facts)).encode()
    body += [text, len(text).to_bytes(8, "little")]
    whole = b"".join(body)
    return whole + zlib.crc32(whole).to_bytes(4, "little") + MAGIC


def read_part(data: memoryview, *, limits: Limits, kind: str = "") -> tuple[HarvestPart, list[FileFacts]]:
    """A part on its bytes, without copying; FormatError if they are damaged or of another version."""
    view = data.cast("B")
    tail = len(MAGIC) + 4
    valid = len(view) > 2 * len(MAGIC) + 12 and view[: len(MAGIC)] == MAGIC and view[-len(MAGIC) :] == MAGIC
    if not valid or zlib.crc32(view[:-tail]) != int.from_bytes(view[-tail : -len(MAGIC)], "little"):
        raise FormatError("a part of the journal is damaged")
    size = int.from_bytes(view[-tail - 8 : -tail], "little")
    try:
        document = parse_json(bytes(view[-tail - 8 - size : -tail - 8]), what="its document")
        if document["version"] != VERSION or document["software"] != __version__:
            raise FormatError("a part of the journal is of another version")
        if document["kind"] != kind:
            raise FormatError("a part of the journal was scanned with other options")
        columns = {
            name: np.frombuffer(view, COLUMNS[name], count, at) for name, (at, count) in document["columns"].items()
        }
        arrays, facts = _read(document, limits)
        _check(arrays, columns)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise FormatError(f"a part of the journal is damaged: {error}") from None
    return HarvestPart(arrays=arrays, columns=columns), facts


def _check(arrays: Sequence[tuple[Array, ...]], columns: Mapping[str, NDArray[Any]]) -> None:
    """FormatError if the columns do not match the arrays of the files."""
    slots, groups, pieces = columns["slots"], columns["groups"], columns["pieces"].reshape(-1, SPAN)
    expected = np.cumsum([0, *map(len, arrays)])
    valid = np.array_equal(slots, expected) and len(groups) == int(expected[-1]) + 1
    if not valid or groups[0] != 0 or groups[-1] != len(pieces) or (np.diff(groups) < 0).any():
        raise FormatError("a part of the journal is inconsistent")
    if len(pieces) and not 0 <= int(pieces[:, :2].min()) <= int(pieces[:, :2].max()) <= len(columns["offset"]):
        raise FormatError("a part of the journal is inconsistent")
    if "at" in columns and ((columns["at"] > len(columns["inline"]) - columns["length"]) & (columns["at"] >= 0)).any():
        raise FormatError("a part of the journal is inconsistent")


def _written(arrays: Sequence[tuple[Array, ...]], facts: Sequence[FileFacts]) -> dict[str, Any]:
    numbers: dict[int, int] = {}
    described: dict[str, Array] = {}
    groups: dict[int, str] = {}
    attributes: dict[str, Mapping[str, Any]] = {}
    files = []
    for found, fact in zip(arrays, facts, strict=True):
        for array in found:
            if id(array) not in numbers:
                numbers[id(array)] = len(numbers)
                described[f"{numbers[id(array)]}/{array.name}"] = array
        group = groups.get(id(fact.attributes))
        if group is None and fact.attributes:
            group = groups[id(fact.attributes)] = str(len(groups))
            attributes[group] = fact.attributes
        described_file = [*_facts(fact.source), fact.format, _text(fact.datetime)]
        sidecars = [[_facts(source) for source in fact.sidecars], fact.stored_in]
        files.append([*described_file, group, [numbers[id(array)] for array in found], *sidecars])
    # The document of an index describes arrays completely, and is validated when it is read.
    return {"files": files, "index": json.loads(dump(document_for(Catalog(arrays=described, attributes=attributes))))}


def _read(document: Mapping[str, Any], limits: Limits) -> tuple[list[tuple[Array, ...]], list[FileFacts]]:
    catalog = load(document["index"], limits=limits).catalog
    described = {}
    for name, array in catalog.arrays.items():
        number, _, plain = name.partition("/")
        described[int(number)] = array.renamed(plain)
    shared: dict[tuple[int, ...], tuple[Array, ...]] = {}
    arrays, facts = [], []
    for url, size, etag, modified, form, taken, group, numbers, sidecars, stored_in in document["files"]:
        arrays.append(shared.setdefault(tuple(numbers), tuple(described[number] for number in numbers)))
        facts.append(
            FileFacts(
                source=_source(url, size, etag, modified),
                sidecars=tuple(_source(*each) for each in sidecars),
                stored_in=tuple(stored_in),
                format=form,
                datetime=_moment(taken),
                attributes={} if group is None else catalog.attributes[group],
            )
        )
    return arrays, facts


def _facts(source: Source) -> list[Any]:
    return [source.url, source.size, source.etag, _text(source.last_modified)]


def _source(url: str, size: int | None, etag: str | None, modified: str | None) -> Source:
    return Source(url=url, size=size, etag=etag, last_modified=_moment(modified))


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat()


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
