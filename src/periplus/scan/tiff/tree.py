"""The role of every directory: image, overview (level) or mask; and the names of their arrays in an index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from periplus.scan.tiff.image import TiffImage


@dataclass(frozen=True, slots=True)
class ImagePlace:
    """The image that one directory belongs to, its level, and whether it is data or mask."""

    image: int
    level: int
    base: int
    """Number of the directory of the image's full resolution."""
    mask: bool = False

    @property
    def name(self) -> str:
        prefix = f"images/{self.image}/" if self.image else ""
        return f"{prefix}{self.level}/{'mask' if self.mask else 'data'}"


@dataclass(slots=True)
class _Family:
    base: int
    levels: list[int] = field(default_factory=list)
    masks: list[int] = field(default_factory=list)


def nest(images: Sequence[TiffImage | None], parents: Sequence[int]) -> dict[int, ImagePlace]:
    """The place of every image. An overview or mask belongs to the image before it, in the chain or as its SubIFD."""
    known = {number: image for number, image in enumerate(images) if image is not None}
    families: list[_Family] = []
    owners: dict[int, _Family] = {}
    current: _Family | None = None
    for number, image in known.items():
        parent = parents[number]
        owner = owners.get(parent) if parent >= 0 else current
        if owner is not None and image.mask:
            owner.masks.append(number)
        elif owner is not None and image.reduced and _overview(known[owner.base], image):
            owner.levels.append(number)
        else:
            owner = _Family(number, [number])
            families.append(owner)
            if parent < 0:
                current = owner
        owners[number] = owner
    return _places(known, families)


def _places(images: Mapping[int, TiffImage], families: list[_Family]) -> dict[int, ImagePlace]:
    places: dict[int, ImagePlace] = {}
    alone: list[int] = []
    for k, family in enumerate(families):
        sizes: dict[tuple[int, int], int] = {}
        for level, number in enumerate(sorted(family.levels, key=lambda n: -images[n].width * images[n].height)):
            places[number] = ImagePlace(k, level, family.base)
            sizes.setdefault(_size(images[number]), level)
        for number in family.masks:
            matching = sizes.pop(_size(images[number]), None)
            if matching is None:
                alone.append(number)
            else:
                places[number] = ImagePlace(k, matching, family.base, mask=True)
    for k, number in enumerate(alone, len(families)):
        places[number] = ImagePlace(k, 0, number)
    return places


def _size(image: TiffImage) -> tuple[int, int]:
    return image.width, image.height


def _overview(base: TiffImage, image: TiffImage) -> bool:
    """Same kind of values, smaller, and of the same proportions up to the rounding of sizes."""
    if (image.samples, image.dtype) != (base.samples, base.dtype) or image.mask != base.mask:
        return False
    if image.width > base.width or image.height > base.height or _size(image) == _size(base):
        return False
    scale = max(base.width / image.width, base.height / image.height)
    wide, high = base.width / scale, base.height / scale
    near = abs(image.width - wide) <= max(2, 0.02 * wide) and abs(image.height - high) <= max(2, 0.02 * high)
    return near or _halved(base, image)


def _halved(base: TiffImage, image: TiffImage) -> bool:
    """Whether one scale, its results rounded up or down, gives both sides; of narrow images they are far apart."""
    sides = ((base.width, image.width), (base.height, image.height))
    least = max(whole / (part + 1) for whole, part in sides)
    most = min(whole / (part - 1) if part > 1 else float("inf") for whole, part in sides)
    return least < most
