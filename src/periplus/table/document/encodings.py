"""Encodings in the footer document: a list of codecs, or an object that also has facts of the stored chunks.

Documents of versions 1 and 2, and Zarr documents that we write, say these facts by codecs and settings, which become
facts when they are read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from periplus.errors import FormatError
from periplus.model import Encoding, Pipeline, Region, Shape
from periplus.model.codecnames import CROP, JBP_BLOCK, JPEG, PIECE, PIPELINE, TIFF_TILE
from periplus.parse.json import INT64, abbreviated, check_integer, check_list, check_object, check_text
from periplus.parse.zarr.dtypes import read_number, write_number
from periplus.table.document.values import read_free, write_free

MOST = 1 << 16
"""Encodings of one array: the column is 16 bits wide."""
FIELDS = frozenset({"codecs", "extent", "clipped", "region"})
REGION_FIELDS = frozenset({"begin", "at", "size", "transparent", "layer"})
PIECE_SETTINGS = {"from": "begin", "at": "at", "size": "size", "clear": "transparent", "layer": "layer"}
"""Settings of periplus.piece, and what they are called now."""
CLIPPING = frozenset({TIFF_TILE, JBP_BLOCK, JPEG, PIPELINE})
"""Codecs with a setting `last_rows`."""
Frame: TypeAlias = tuple[tuple[str, ...], Shape, tuple[bool, ...], "np.dtype[Any]"]
"""Dimensions of an array, its chunks, along which dimensions they are regular, and its type."""
Memory: TypeAlias = dict[tuple[str, Frame], tuple[Encoding, ...]]
"""Encodings read before: arrays that are encoded alike share one object, which decoders are cached by."""


def write_encoding(encoding: Encoding, what: str) -> Any:
    """The encoding as JSON."""
    codecs = write_free(list(encoding.codecs), what)
    facts: dict[str, Any] = {}
    if encoding.extent is not None:
        facts["extent"] = [int(n) for n in encoding.extent]
    if encoding.clipped:
        facts["clipped"] = list(encoding.clipped)
    if (region := encoding.region) is not None:
        sides = {"begin": region.begin, "at": region.at, "size": region.size}
        facts["region"] = {name: [int(n) for n in side] for name, side in sides.items()}
        if region.transparent is not None:
            facts["region"]["transparent"] = write_number(region.transparent)
        if region.layer:
            facts["region"]["layer"] = int(region.layer)
    return {"codecs": codecs, **facts} if facts else codecs


def read_encodings(value: Any, frame: Frame, what: str, memory: Memory) -> tuple[Encoding, ...]:
    """The encodings of an array, every fact checked against its chunks; FormatError where one makes no sense."""
    key = json.dumps(value, sort_keys=True), frame
    if key not in memory:
        found = check_list(value, f"{what}: encodings", lambda item, at: _with_valid_orders(item, frame, at))
        if len(found) > MOST:
            raise FormatError(f"{what}: more than {MOST} encodings")
        memory[key] = found
    return memory[key]


def _with_valid_orders(value: Any, frame: Frame, what: str) -> Encoding:
    """The encoding; FormatError where a transpose does not name each dimension once, as stacks change these orders."""
    encoding = _read_encoding(value, frame, what)
    rank = len(frame[1])
    for codec in encoding.codecs:
        if codec["name"] == "transpose":
            order = check_list(
                (codec.get("configuration") or {}).get("order"), f"{what}: transpose order", check_integer
            )
            if sorted(order) != list(range(rank)):
                raise FormatError(f"{what}: transpose order must name each of {rank} dimensions once")
    return encoding


def _read_encoding(value: Any, frame: Frame, what: str) -> Encoding:
    if not isinstance(value, Mapping):
        return encoding_of(check_list(value, what, _read_codec), frame, what)
    fields = _known(check_object(value, what), FIELDS, what)
    found = encoding_of(check_list(fields.get("codecs"), f"{what}: codecs", _read_codec), frame, what)
    clipped = check_list(fields.get("clipped", []), f"{what}: clipped", check_text)
    extent, region = fields.get("extent"), fields.get("region")
    rank = len(frame[1])
    if (found.extent is not None and extent is not None) or (found.region is not None and region is not None):
        raise FormatError(f"{what}: its codecs and its fields both have an extent or a region")
    return _checked(
        Encoding(
            found.codecs,
            extent=found.extent if extent is None else _sizes(extent, rank, f"{what}: extent", least=1),
            clipped=tuple(dict.fromkeys((*found.clipped, *clipped))),
            region=found.region
            if region is None
            else _read_region(check_object(region, f"{what}: region"), rank, what),
        ),
        frame,
        what,
    )


def _read_region(fields: dict[str, Any], rank: int, what: str) -> Region:
    _known(fields, REGION_FIELDS, f"{what}: region")
    transparent = fields.get("transparent")
    return Region(
        begin=_sizes(fields.get("begin"), rank, f"{what}: begin"),
        at=_sizes(fields.get("at"), rank, f"{what}: at"),
        size=_sizes(fields.get("size"), rank, f"{what}: size", least=1),
        transparent=None if transparent is None else read_number(transparent, f"{what}: transparent"),
        layer=check_integer(fields.get("layer", 0), f"{what}: layer", most=MOST - 1),
    )


def _sizes(value: Any, rank: int, what: str, *, least: int = 0) -> Shape:
    return check_list(value, what, lambda item, at: check_integer(item, at, least=least), size=rank)


def _known(fields: dict[str, Any], names: frozenset[str], what: str) -> dict[str, Any]:
    """The fields, none of which is unknown: it may change what the bytes mean."""
    unknown = fields.keys() - names
    if unknown:
        raise FormatError(f"{what} has an unknown field {abbreviated(min(unknown))}")
    return fields


def _read_codec(value: Any, what: str) -> dict[str, Any]:
    codec = check_object(value, what)
    name = check_text(codec.get("name"), f"{what}: codec name")
    unknown = set(codec) - {"name", "configuration", "must_understand"}
    if unknown or not name:
        raise FormatError(f"{what}: codec {abbreviated(name)} has an unknown field {sorted(unknown)}")
    if "configuration" not in codec:
        return read_free(codec)  # type: ignore[no-any-return]
    return read_free(codec | {"configuration": check_object(codec["configuration"], f"{what}: {name}")})  # type: ignore[no-any-return]


# --- facts in codecs -------------------------------------------------------------------------------------------------


def encoding_of(codecs: Pipeline, frame: Frame, what: str) -> Encoding:
    """The encoding of a list of codecs, some of which may describe stored chunks as our Zarr documents do."""
    dims, chunks, _, dtype = frame
    extent: Shape | None = None
    region: Region | None = None
    clipped = False
    rank = len(chunks)
    if codecs and codecs[0]["name"] == PIECE:
        settings = dict(codecs[0].get("configuration") or {})
        extent = _sizes(settings.pop("shape", None), rank, f"{what}: shape", least=1)
        unknown = settings.keys() - PIECE_SETTINGS.keys()
        if unknown:
            raise FormatError(f"{what}: codec {PIECE} has no setting {abbreviated(min(unknown))}")
        region = _read_region({PIECE_SETTINGS[key]: value for key, value in settings.items()}, rank, what)
        codecs = codecs[1:]
    inner = _listed(codecs, extent or chunks, dtype)
    if inner is not None:
        codecs, clipped = inner
    while codecs and codecs[0]["name"] == CROP:
        settings = _known(dict(codecs[0].get("configuration") or {}), frozenset({"shape"}), f"{what}: codec {CROP}")
        larger = _sizes(settings.get("shape"), rank, f"{what}: shape", least=1)
        if extent is not None and any(n < m for n, m in zip(larger, extent, strict=True)):
            raise FormatError(f"{what}: {CROP} of {list(larger)} does not hold {list(extent)}")
        extent, codecs = larger, codecs[1:]
    kept = []
    for codec in codecs:
        settings = codec.get("configuration") or {}
        if codec["name"] in CLIPPING and "last_rows" in settings:
            check_integer(settings["last_rows"], f"{what}: last_rows", least=1)
            clipped = True
            codec = {**codec, "configuration": {key: value for key, value in settings.items() if key != "last_rows"}}
        kept.append(codec)
    if clipped and rank < 2:
        raise FormatError(f"{what}: last_rows of chunks without rows")
    encoding = Encoding(tuple(kept), extent=extent, clipped=(dims[-2],) if clipped else (), region=region)
    return _checked(encoding, frame, what)


def _listed(codecs: Pipeline, chunks: Shape, dtype: np.dtype[Any]) -> tuple[Pipeline, bool] | None:
    """The codecs within a lone periplus.pipeline, and whether its last rows are fewer; None where it is none for these
    chunks, which decoders refuse."""
    if len(codecs) != 1 or codecs[0]["name"] != PIPELINE:
        return None
    settings = dict(codecs[0].get("configuration") or {})
    inner, rows = settings.pop("codecs", None), settings.pop("last_rows", None)
    shape, kind = settings.pop("shape", list(chunks)), settings.pop("dtype", dtype.str)
    types = dtype.str, dtype.newbyteorder("S").str
    if settings or shape != list(chunks) or kind not in types or (rows is not None and type(rows) is not int):
        return None
    if not isinstance(inner, list) or not all(_is_codec(codec) for codec in inner):
        return None
    return tuple(inner), rows is not None


def _is_codec(value: Any) -> bool:
    """Whether a value is a codec that may be within periplus.pipeline."""
    if not isinstance(value, Mapping) or value.keys() - {"name", "configuration"}:
        return False
    name, settings = value.get("name"), value.get("configuration", {})
    return isinstance(name, str) and name not in ("", PIPELINE, PIECE) and isinstance(settings, Mapping)


def _checked(encoding: Encoding, frame: Frame, what: str) -> Encoding:
    """The encoding, whose facts fit the chunks; along a dimension of uneven chunks decoders check each of them."""
    dims, chunks, regular, _ = frame
    extent, region = encoding.extent, encoding.region
    strange = next((dim for dim in encoding.clipped if dim not in dims), None)
    if strange is not None:
        raise FormatError(f"{what}: clipped along {abbreviated(strange)}, which is no dimension of the array")
    if extent is not None and any(n > INT64 for n in extent):
        raise FormatError(f"{what}: an extent of {abbreviated(max(extent))} cannot be")
    if region is None:
        if extent is not None and any(
            n < chunk for n, chunk, even in zip(extent, chunks, regular, strict=True) if even
        ):
            raise FormatError(f"{what}: an extent of {list(extent)} does not hold chunks of {list(chunks)}")
        return encoding
    if extent is None:
        raise FormatError(f"{what}: a region of chunks whose extent is not given")
    sides = zip(region.end, extent, region.at, region.size, chunks, strict=True)
    if any(end > stored or at + size > chunk for end, stored, at, size, chunk in sides):
        raise FormatError(
            f"{what}: a region at {list(region.begin)} of {list(extent)} to {list(region.at)}, of {list(region.size)},"
            f" is not within chunks of {list(chunks)}"
        )
    return encoding


def frame_of(
    dims: tuple[str, ...], chunks: Shape, dtype: np.dtype[Any], edges: tuple[tuple[int, ...] | None, ...] | None = None
) -> Frame:
    """What of an array encodings are checked against."""
    return dims, chunks, tuple(each is None for each in edges or (None,) * len(chunks)), dtype
