"""R-sets: reduced resolutions of a NITF image in sidecars, `image.ntf.r1`, `.r2` …, as levels of its pyramid."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any

from periplus.errors import FormatError, PeriplusError
from periplus.limits import Limits
from periplus.model import Array, FirstSidecar, Found, Need, Shape, Source
from periplus.scan.georeference.geotiff import reduced
from periplus.scan.sidecars import name_of

MOST = 16
"""Most levels that are looked for; an image reduced so often is a pixel."""
HEAD_BYTES = 16_384
OWN = re.compile(r"\.[rR]\d+")
Reading = Callable[[Source, Limits], Generator[Any, Any, list[Found]]]


def names(url: str, number: int) -> tuple[str, ...]:
    """What the R-set of that number may be called; empty for a file that is an R-set itself."""
    name = name_of(url)
    if name is None or (OWN.fullmatch(name.suffix) and name.suffix[2:] != "0"):
        return ()
    stem = name.stem if name.suffix in (".r0", ".R0") else name.whole
    capitals = len(name.suffix) > 1 and name.suffix == name.suffix.upper()
    return (f"{stem}.R{number}", f"{stem}.r{number}") if capitals else (f"{stem}.r{number}",)


def levels(
    source: Source, found: Sequence[Found], limits: Limits, read: Reading
) -> Generator[Any, Any, tuple[list[Found], list[str]]]:
    """Levels of the images that have only one, up to the first missing number; and why others are omitted.

    Levels of a codestream are exact, so such images need no others.
    """
    images = _images(found)
    if not images or len(images) < len(found):
        return [], []
    more: list[Found] = []
    refusals: list[str] = []
    powers = [0] * len(images)
    counts = [1] * len(images)
    for number in range(1, MOST + 1):
        wanted = names(source.url, number)
        place = (yield FirstSidecar(wanted, HEAD_BYTES)) if wanted else None
        if place is None:
            break
        name, other = place
        try:
            smaller = _images((yield from read_from(name, read(other, limits))))
            if len(smaller) > len(images):
                raise FormatError(f"it has {len(smaller)} images, and the file {len(images)}")
            numbers = {each.array.name: k for k, each in enumerate(images)}
            # An omitted image has no levels, and the others keep their numbers.
            pairs = [(numbers[small.array.name], small) for small in smaller if small.array.name in numbers]
            if not pairs:
                raise FormatError("it belongs to an image that was omitted")
            for k, small in pairs:
                large = images[k]
                power = _power(large.array, small.array, powers[k])
                more.append(_level(large.array, small, name, counts[k], power))
                powers[k], counts[k] = power, counts[k] + 1
        except PeriplusError as error:
            refusals.append(f"{name}: {error.message}")
    return more, refusals


def read_from(name: str, steps: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """A scan that reads its bytes from the file of that name."""
    answer = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as end:
            return end.value
        answer = yield (
            replace(step, sidecar=name)
            if isinstance(step, Need)
            else tuple(replace(need, sidecar=name) for need in step)
        )


def _images(found: Sequence[Found]) -> list[Found]:
    return [each for each in found if each.array.level == 0]


def _power(large: Array, small: Array, last: int) -> int:
    """The power of two by which the image was reduced."""
    if (large.shape[0], large.dtype) != (small.shape[0], small.dtype):
        raise FormatError(
            f"it has {small.shape[0]} bands of {small.dtype}, and the image {large.shape[0]} of {large.dtype}"
        )
    for power in range(last + 1, MOST + 1):
        if all(_halved(a, b, power) for a, b in zip(large.shape[1:], small.shape[1:], strict=True)):
            return power
    raise FormatError(
        f"its {_size(small.shape)} pixels are not a reduction of the image's {_size(large.shape)} by a power of two"
    )


def _halved(large: int, small: int, power: int) -> bool:
    """Whether one size is the other halved so often, each time rounded up or down."""
    return max(1, large >> power) <= small <= -(-large >> power)


def _size(shape: Shape) -> str:
    return f"{shape[-1]} x {shape[-2]}"


def _level(large: Array, small: Found, name: str, level: int, power: int) -> Found:
    prefix = large.name.removesuffix("0/data")
    array = small.array.renamed(
        f"{prefix}{level}/data",
        level=level,
        georeference=reduced(large.georeference, 1 << power, 1 << power),
    )
    return Found(array, small.refs, sidecar=name)
