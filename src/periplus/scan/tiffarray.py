"""TIFF directories to arrays and references: the pure middle of the scanner, its parts cached by value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from periplus.errors import FormatError, PeriplusError
from periplus.limits import Limits
from periplus.model import About, Array, Georeference, Refs
from periplus.scan.geotiff import georeference, reduced
from periplus.scan.tiffabout import attributes, file_time, told
from periplus.scan.tiffcodecs import KNOWN, pipeline
from periplus.scan.tiffimage import OLD_JPEG, Image, image
from periplus.scan.tiffrefs import jpeg_stream, locate
from periplus.scan.tifftree import Place, nest

if TYPE_CHECKING:
    from periplus.scan.tiff import Directory

CACHED_BYTES = 16_384
"""Directories with more bytes of values than this are not kept for the next file."""
CACHED_IMAGES = 64

Layer = tuple[Image | None, int, int]
"""Facts of a directory, rows per chunk, and the directory it is a SubIFD of."""


def describe(
    directories: Sequence[Directory], limits: Limits, size: int | None
) -> tuple[About | None, list[tuple[Array, Refs]]]:
    """What the file says of itself, and every array with its references."""
    layers: list[Layer] = []
    located: list[Refs | None] = []
    refusals: list[tuple[int, str]] = []
    for number, directory in enumerate(directories):
        try:
            facts, rows, refs = _facts(directory), 0, None
            why = None if facts is None else _refusal(facts, directory)
            if why is not None:
                refusals.append((number, why))
            elif facts is not None:
                rows, refs = locate(facts, directory.offsets, directory.counts, limits=limits, size=size)
        except PeriplusError as error:
            error.message = f"image {number}: {error.message}"
            raise error.at(offset=directory.offset) from None
        layers.append((facts, rows, directory.parent))
        located.append(refs)
    build = _arrays if len(layers) <= CACHED_IMAGES else _arrays.__wrapped__
    about, arrays = build(tuple(layers), tuple(refusals))
    if not arrays:
        number, why = refusals[0] if refusals else (0, "the file holds no image")
        raise FormatError(f"image {number}: {why}", offset=directories[number].offset)
    return about, [(array, refs) for number, array in arrays if (refs := located[number]) is not None]


def _facts(directory: Directory) -> Image | None:
    build = image if directory.weight <= CACHED_BYTES else image.__wrapped__
    return build(directory.fields, directory.order)


def _refusal(facts: Image, directory: Directory) -> str | None:
    if facts.refusal is not None:
        return facts.refusal
    if facts.compression not in KNOWN:
        return f"compression {facts.compression} is not one we know"
    if facts.compression == OLD_JPEG and jpeg_stream(facts, directory.offsets, directory.counts) is None:
        return "old-style JPEG (compression 6) is read only where one whole JPEG stream holds the image"
    return None


@lru_cache(maxsize=256)
def _arrays(
    layers: tuple[Layer, ...], refusals: tuple[tuple[int, str], ...]
) -> tuple[About | None, tuple[tuple[int, Array], ...]]:
    """Arrays by the number of their directory, full resolution first; none where the first image is refused."""
    facts = [layer[0] for layer in layers]
    refused = {number for number, _ in refusals}
    places = nest(facts, [layer[2] for layer in layers])
    kept = {n: place for n, place in places.items() if n not in refused and place.base not in refused}
    if not any(place.image == 0 for place in kept.values()):
        return None, ()
    order = sorted(kept, key=lambda n: (kept[n].image, kept[n].level, kept[n].mask))
    pictures = {base: _picture(facts[base]) for base in {place.base for place in kept.values()}}
    arrays = tuple((n, _array(facts[n], layers[n][1], pictures[kept[n].base], kept[n])) for n in order)
    time = next((t for f in facts if f is not None and (t := file_time(f.fields)) is not None), None)
    notes = {"refused": [f"image {number}: {why}" for number, why in refusals]} if refusals else {}
    return (About(datetime=time, attributes=notes) if time or notes else None), arrays


@dataclass(frozen=True, slots=True)
class _Picture:
    """What all levels of an image share."""

    base: Image
    where: Georeference | None
    fill: int | float
    told: dict[str, Any]
    """Attributes of full resolution."""
    kept: dict[str, Any]
    """Attributes that hold for every level."""


def _picture(base: Image | None) -> _Picture:
    if base is None:
        raise FormatError("an overview belongs to no image")
    kept = attributes(base)
    return _Picture(base, georeference(base.fields), kept.get("_FillValue", 0), {**kept, **told(base)}, kept)


def _array(own: Image | None, rows: int, picture: _Picture, place: Place) -> Array:
    base = picture.base
    own = base if own is None else own
    return Array(
        name=place.name,
        dims=("bands", "y", "x"),
        shape=(own.samples, own.height, own.width),
        chunks=(own.stored, rows, own.chunk_width),
        dtype=own.dtype,
        fill=0 if place.mask else picture.fill,
        encodings=(pipeline(own, rows),),
        attributes={} if place.mask else picture.told if own is base else picture.kept,
        level=place.level,
        georeference=reduced(picture.where, base.width, base.height, own.width, own.height),
    )
