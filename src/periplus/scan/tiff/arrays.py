"""Arrays and references of TIFF directories: pure functions, cached by value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from periplus.errors import FormatError, LimitError, PeriplusError
from periplus.limits import Limits
from periplus.model import About, Array, Encoding, Georeference, Refs
from periplus.scan.georeference.geotiff import georeference, reduced
from periplus.scan.tiff.attributes import attributes, file_time, full_attributes, unread
from periplus.scan.tiff.codecs import KNOWN, encoding
from periplus.scan.tiff.entries import Values
from periplus.scan.tiff.image import OLD_JPEG, TiffImage, image
from periplus.scan.tiff.oldjpeg import StripHead, with_heads
from periplus.scan.tiff.references import jpeg_stream, locate
from periplus.scan.tiff.tree import ImagePlace, nest

if TYPE_CHECKING:
    from periplus.scan.tiff.scan import Directory

CACHED_BYTES = 16_384
"""Directories with more bytes of values than this are not kept for the next file."""
CACHED_IMAGES = 64

Layer = tuple[TiffImage | None, int, int, bool]
"""Facts of a directory, rows per chunk, the directory it is a SubIFD of, and whether it is old-style JPEG in pieces."""
Refusals = tuple[tuple[int, str], ...]
"""Numbers of directories that are not supported, or -1, and why."""


def describe(
    directories: Sequence[Directory],
    limits: Limits,
    size: int | None,
    *,
    unread: Sequence[str] = (),
    heads: Mapping[int, StripHead] = MappingProxyType({}),
) -> tuple[About | None, list[tuple[Array, Refs]]]:
    """Metadata of the file, and every array with its references.

    `unread` is why it may have more directories, `heads` what the strips of old-style JPEG images need.
    """
    layers: list[Layer] = []
    located: list[Refs | None] = []
    refused: dict[int, PeriplusError] = {}
    light = len(directories) <= CACHED_IMAGES
    for number, directory in enumerate(directories):
        small = directory.weight <= CACHED_BYTES
        light = light and small
        facts, rows, refs = None, 0, None
        try:
            facts = (image if small else image.__wrapped__)(directory.form, directory.structure)
            if facts is not None:
                _check_supported(facts, directory, number in heads)
                rows, refs = locate(facts, directory.offsets, directory.counts, limits=limits, size=size)
                refs = with_heads(facts, refs, heads[number]) if number in heads else refs
        except (FormatError, LimitError) as error:
            # Other images can be read without this one.
            error.message = f"image {number}: {error.message}"
            refused[number] = error.at(offset=directory.offset)
            if facts is None and not number:
                break
        layers.append((facts, rows, directory.parent, number in heads))
        located.append(refs)
    build = _arrays if light else _arrays.__wrapped__
    reasons = (*[(number, error.message) for number, error in refused.items()], *[(-1, why) for why in unread])
    about, arrays = build(tuple(layers), tuple([directory.metadata for directory in directories]), reasons)
    if not arrays:
        none = FormatError("image 0: the file holds no image", offset=directories[0].offset)
        raise next(iter(refused.values()), none)
    return about, [(array, refs) for number, array in arrays if (refs := located[number]) is not None]


def _check_supported(facts: TiffImage, directory: Directory, in_pieces: bool) -> None:
    if facts.refusal is not None:
        raise FormatError(facts.refusal)
    if facts.compression not in KNOWN:
        raise FormatError(f"compression {facts.compression} is not supported")
    stream = in_pieces or jpeg_stream(facts, directory.offsets, directory.counts) is not None
    if facts.compression == OLD_JPEG and not stream:
        raise FormatError("the old-style JPEG image (compression 6) has no JPEG stream, or lacks tables for its strips")


@lru_cache(maxsize=256)
def _arrays(
    layers: tuple[Layer, ...], metadata: tuple[Values, ...], refusals: Refusals
) -> tuple[About | None, tuple[tuple[int, Array], ...]]:
    """Arrays by the number of their directory, full resolution first; none where the first image is refused."""
    parts = (_parts if len(layers) <= CACHED_IMAGES else _parts.__wrapped__)(layers, refusals)
    pictures: dict[int, _ImageMetadata] = {}
    for part in parts:
        if part.place.base not in pictures:
            values = metadata[part.place.base]
            small = sum([len(value) for value in values if value]) <= CACHED_BYTES
            pictures[part.place.base] = (_picture if small else _picture.__wrapped__)(part.base, values)
    arrays = tuple([(part.number, _array(part, pictures[part.place.base])) for part in parts])
    time = next((picture.time for picture in pictures.values() if picture.time is not None), None)
    lost = [(number, why) for number, picture in pictures.items() for why in picture.lost]
    left_out = [*(why for _, why in refusals), *(f"image {number}: {why}" for number, why in lost)]
    notes = {"refused": left_out} if left_out else {}
    return (About(datetime=time, attributes=notes) if time or notes else None), arrays


@dataclass(frozen=True, slots=True, eq=False)
class _ArrayPlan:
    """One array without the metadata of its file."""

    number: int
    own: TiffImage
    base: TiffImage
    place: ImagePlace
    name: str
    chunks: tuple[int, int, int]
    encodings: tuple[Encoding, ...]


@lru_cache(maxsize=256)
def _parts(layers: tuple[Layer, ...], refusals: Refusals) -> tuple[_ArrayPlan, ...]:
    facts = [layer[0] for layer in layers]
    refused = {number for number, _ in refusals}
    places = nest(facts, [layer[2] for layer in layers])
    parts = []
    for number, place in places.items():
        own, base = facts[number], facts[place.base]
        if own is not None and base is not None and refused.isdisjoint((number, place.base)):
            rows = layers[number][1]
            chunks = (own.stored, rows, own.chunk_width)
            coded = encoding(own, rows, in_pieces=layers[number][3])
            parts.append(_ArrayPlan(number, own, base, place, place.name, chunks, (coded,)))
    parts.sort(key=lambda part: (part.place.image, part.place.level, part.place.mask))
    return tuple(parts) if parts and parts[0].place.image == 0 else ()


@dataclass(frozen=True, slots=True, eq=False)
class _ImageMetadata:
    """Metadata of one image, which all its levels share."""

    where: Georeference | None
    fill: int | float
    full: dict[str, Any]
    """Attributes of full resolution."""
    kept: dict[str, Any]
    """Attributes that hold for every level."""
    time: datetime | None
    lost: tuple[str, ...]
    """Metadata that could not be read."""


@lru_cache(maxsize=256)
def _picture(base: TiffImage, metadata: Values) -> _ImageMetadata:
    fields = base.form.fields(metadata=metadata)
    kept = attributes(base, fields)
    full = {**kept, **full_attributes(fields, base.samples)}
    lost = unread(fields, base.form.missing(metadata))
    if not base.form.ascending:
        lost = (*lost, "its tags are not in ascending order, so that some may be damaged or missing")
    return _ImageMetadata(georeference(fields), kept.get("_FillValue", 0), full, kept, file_time(fields), lost)


def _array(part: _ArrayPlan, picture: _ImageMetadata) -> Array:
    own, base, mask = part.own, part.base, part.place.mask
    return Array(
        name=part.name,
        dims=("bands", "y", "x"),
        shape=(own.samples, own.height, own.width),
        chunks=part.chunks,
        dtype=own.dtype,
        fill=0 if mask else picture.fill,
        encodings=part.encodings,
        attributes={} if mask else picture.full if own is base else picture.kept,
        level=part.place.level,
        georeference=reduced(picture.where, base.width / own.width, base.height / own.height),
    )
