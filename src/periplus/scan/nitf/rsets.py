"""R-sets: reduced resolutions of a NITF image in files beside it, `image.ntf.r1`, `.r2` …, as levels of its pyramid."""

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
"""Levels looked for, at most; an image halved so often is a pixel."""
HEAD_BYTES = 16_384
OWN = re.compile(r"\.[rR]\d+")
Reading = Callable[[Source, Limits], Generator[Any, Any, list[Found]]]


def names(url: str, number: int) -> tuple[str, ...]:
    """What the R-set of that number may be called; nothing for the R-sets of a file that is one itself."""
    name = name_of(url)
    if name is None or (OWN.fullmatch(name.suffix) and name.suffix[2:] != "0"):
        return ()
    stem = name.stem if name.suffix in (".r0", ".R0") else name.whole
    loud = len(name.suffix) > 1 and name.suffix == name.suffix.upper()
    return (f"{stem}.R{number}", f"{stem}.r{number}") if loud else (f"{stem}.r{number}",)


def levels(
    source: Source, found: Sequence[Found], limits: Limits, read: Reading
) -> Generator[Any, Any, tuple[list[Found], list[str]]]:
    """Levels of the images that have only one, up to the first number that is not there; and why others are left out.

    Those that a codestream has of its own are exact, and have no need of others.
    """
    images = _images(found)
    if not images or len(images) < len(found):
        return [], []
    more: list[Found] = []
    refusals: list[str] = []
    reached = [0] * len(images)
    counts = [1] * len(images)
    for number in range(1, MOST + 1):
        place = (yield FirstSidecar(names(source.url, number), HEAD_BYTES)) if names(source.url, number) else None
        if place is None:
            break
        name, other = place
        try:
            smaller = _images((yield from elsewhere(name, read(other, limits))))
            if len(smaller) > len(images):
                raise FormatError(f"it has {len(smaller)} images, and the file {len(images)}")
            numbers = {each.array.name: k for k, each in enumerate(images)}
            # An image that was left out has no levels, and the others keep their numbers.
            pairs = [(numbers[small.array.name], small) for small in smaller if small.array.name in numbers]
            if not pairs:
                raise FormatError("it is of an image that is left out")
            for k, small in pairs:
                large = images[k]
                power = _power(large.array, small.array, reached[k])
                more.append(_level(large.array, small, name, counts[k], power))
                reached[k], counts[k] = power, counts[k] + 1
        except PeriplusError as error:
            refusals.append(f"{name}: {error.message}")
    return more, refusals


def elsewhere(name: str, steps: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """A scan whose bytes are those of the file of that name."""
    answer = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as end:
            return end.value
        answer = yield (
            replace(step, sibling=name)
            if isinstance(step, Need)
            else tuple(replace(need, sibling=name) for need in step)
        )


def _images(found: Sequence[Found]) -> list[Found]:
    return [each for each in found if each.array.level == 0]


def _power(large: Array, small: Array, last: int) -> int:
    """How often the image was halved."""
    if (large.shape[0], large.dtype) != (small.shape[0], small.dtype):
        raise FormatError(
            f"it has {small.shape[0]} bands of {small.dtype}, and the image {large.shape[0]} of {large.dtype}"
        )
    for power in range(last + 1, MOST + 1):
        if all(_halved(a, b, power) for a, b in zip(large.shape[1:], small.shape[1:], strict=True)):
            return power
    raise FormatError(f"its {_size(small.shape)} pixels are not the image's {_size(large.shape)} halved again")


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
        georeference=reduced(large.georeference, 1 << power, 1 << power, 1, 1),
    )
    return Found(array, small.refs, sibling=name)
