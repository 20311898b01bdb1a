"""Choose the image, times and bands of a catalog to read. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError, MissingError, some
from periplus.model import Array, Catalog, pyramid_of
from periplus.table.collection.groups import GroupedArrays
from periplus.table.query.times import time_coordinate, within

Bands = int | str | Sequence[int | str]


class Images(Collection[str]):
    """The names of all images of a catalog: arrays with rows and columns, except masks; computed on iteration."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog, arrays = catalog, catalog.arrays
        groups = arrays if isinstance(arrays, GroupedArrays) else None
        self._groups = groups
        plain = arrays if groups is None else groups.plain
        self._plain = [name for name, _ in _finest(plain.items())]
        self._families = [] if groups is None else [_finest(family.items()) for family in groups.families]

    def __len__(self) -> int:
        counts = [] if self._groups is None else self._groups.sizes
        return len(self._plain) + sum(n * len(found) for n, found in zip(counts, self._families, strict=True))

    def __iter__(self) -> Iterator[str]:
        yield from self._plain
        if self._groups is not None:
            for group, family in zip(self._groups.group_list, self._groups.family.tolist(), strict=True):
                for _, array in self._families[family]:
                    yield pyramid_of(f"{group}/{array.name}", array.level)

    def __contains__(self, name: object) -> bool:
        levels = self._catalog.levels(name) if isinstance(name, str) else []
        return bool(levels) and _is_image(levels[0])


def _finest(arrays: Iterable[tuple[str, Array]]) -> list[tuple[str, Array]]:
    """The images among arrays: their names and finest levels."""
    found: dict[str, Array] = {}
    for name, array in arrays:
        pyramid = pyramid_of(name, array.level)
        if pyramid not in found or array.level < found[pyramid].level:
            found[pyramid] = array
    return [(name, array) for name, array in found.items() if _is_image(array)]


def _is_image(finest: Array) -> bool:
    return finest.ndim >= 2 and not finest.is_mask


def pick(catalog: Catalog, name: str | None) -> tuple[list[Array], Array]:
    """The levels of an image by its name (`data`, `a/data`, or its group `a`), and the one to read."""
    arrays = catalog.arrays
    if name is not None and not isinstance(name, str):
        raise TypeError(f"array is the name of an image or array, such as 0/data, not {name!r}")
    if name is None:
        found = Images(catalog)
        name = "data" if "data" in found else only(found, f"this index has {len(found) or 'no'} images")
    for path in (name, f"{name.strip('/')}/data"):  # the name of a group selects the image in it
        image = arrays.get(path)
        levels = catalog.levels(path if image is None else image.pyramid)
        if levels:
            return levels, levels[0] if image is None else image
    known = dict.fromkeys(array.pyramid for array in arrays.values())
    raise MissingError(f"no image or array {name!r}; this index has {some(known, like=name)}")


def at_level(levels: Sequence[Array], level: int, named: Array | None) -> Array:
    """One level of an image; ValueError where there is none, or another level was named."""
    if not isinstance(level, Integral) or isinstance(level, bool):
        raise TypeError(f"level is a number, 0 for full resolution, not {level!r}")
    if named is not None and named.level != level and len(levels) > 1:
        raise ValueError(f"array= {named.name} is level {named.level}, and level= is {level}; choose by one of them")
    found = next((array for array in levels if array.level == level), None)
    if found is None:
        there = ", ".join(str(array.level) for array in levels)
        raise ValueError(f"there is no level {level}; the levels are {there}")
    return found


def only(names: Collection[str], among: str) -> str:
    """The only name; MissingError, which lists the names, where there are several or none."""
    if len(names) != 1:
        raise MissingError(among + (f"; choose one with array=: {some(names)}" if names else ""))
    return next(iter(names))


def time_key(catalog: Catalog, image: Array, time: Any, keys: list[Any]) -> dict[str, NDArray[Any]]:
    """Set the key of the time dimension; return the selected coordinates of all dimensions that have one."""
    if time is not None:
        moments = time_coordinate(catalog, image)
        if moments is None:
            raise MissingError(f"{image.name} has no times; its dimensions are {', '.join(image.dims)}")
        found = _positions(moments.values, time)
        contiguous = found[-1] - found[0] + 1 == len(found)
        key = slice(int(found[0]), int(found[-1]) + 1) if contiguous else found.tolist()
        keys[image.dims.index(moments.dims[0])] = key
    known = catalog.coordinates_of(image)
    return {
        dim: np.asarray(known[dim].values)[keys[d]]
        for d, dim in enumerate(image.dims)
        if dim in known and known[dim].dims == (dim,)
    }


def _positions(moments: NDArray[Any], time: Any) -> NDArray[np.int64]:
    """Positions of the coordinate that are within `time`; MissingError where there are none."""
    found = np.flatnonzero(within(moments, time))
    if not found.size:
        known = moments[~np.isnat(moments)]
        extent = f"from {known.min()} to {known.max()}" if known.size else "unknown"
        raise MissingError(f"no data at the time {_shown(time)}; the times are {extent}")
    return found


def _shown(time: Any) -> str:
    ends = (time.start, time.stop) if isinstance(time, slice) else time
    return " to ".join(".." if t is None else str(t) for t in ends) if isinstance(ends, tuple | list) else str(ends)


def band_key(image: Array, bands: Bands | None, keys: list[Any]) -> tuple[tuple[str, ...], int | slice | list[int]]:
    """Set the key of the bands dimension; return the names of the bands read, and that key.

    `bands` are names, or numbers that count from 1; keys are positions, which count from 0.
    """
    stored = image.attributes.get("band_names")
    names = [str(name) for name in stored] if isinstance(stored, list | tuple) else []
    if bands is None:
        return tuple(names), slice(None)
    if "bands" not in image.dims:
        raise MissingError(f"{image.name} has no bands; its dimensions are {', '.join(image.dims)}")
    d = image.dims.index("bands")
    single = isinstance(bands, str | Integral)
    if not isinstance(bands, str | Integral | Iterable):
        raise TypeError(f"bands are numbers that count from 1, or names, not {bands!r}")
    requested: Sequence[Any] = [bands] if single else list(bands)
    numbers = [_band(image, band, names, image.shape[d]) for band in requested]
    contiguous = numbers and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    keys[d] = numbers[0] if single else slice(numbers[0], numbers[-1] + 1) if contiguous else numbers
    return tuple(names[n] for n in numbers if n < len(names)), keys[d]


def _band(image: Array, band: int | str, names: list[str], count: int) -> int:
    if isinstance(band, str):
        if not band or band not in names:
            known = some(names, like=band) if names else "no named bands"
            raise MissingError(f"{image.name} has no band {band!r}; it has {known}")
        if names.count(band) > 1:
            numbers = ", ".join(str(n) for n, name in enumerate(names, 1) if name == band)
            raise ValueError(f"{image.name} has several bands named {band!r}; choose one by number: {numbers}")
        return names.index(band)
    if not isinstance(band, Integral) or isinstance(band, bool):
        raise TypeError(f"bands are numbers that count from 1, or names, not {band!r}")
    if not 1 <= band <= count:
        raise MissingError(f"{image.name} has no band {band}; it has {count}, and bands count from 1")
    return int(band) - 1


def nodata_of(image: Array, bands: int | slice | list[int]) -> Any:
    """The nodata value; where bands differ, a list for the bands read, or the value of the single band."""
    value = image.attributes.get("_FillValue")
    if not isinstance(value, list | tuple):
        return _number(image, value)
    each = [_number(image, v) for v in value]
    try:
        return [each[n] for n in bands] if isinstance(bands, list) else each[bands]
    except IndexError:
        raise FormatError(f"{image.name} has {len(each)} nodata values, fewer than bands") from None


def attributes_of(image: Array, bands: int | slice | list[int]) -> dict[str, Any]:
    """The attributes of an array; lists with a value for each band are reduced to the bands read."""
    count = image.shape[image.dims.index("bands")] if "bands" in image.dims else None

    def read(value: Any) -> Any:
        if not isinstance(value, list | tuple) or len(value) != count:
            return value
        return [value[n] for n in bands] if isinstance(bands, list) else value[bands]

    return {name: read(value) for name, value in image.attributes.items()}


def _number(image: Array, value: Any) -> Any:
    """The nodata value as a number: JSON has no NaN and infinities, and Zarr stores them as text."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        raise FormatError(f"the nodata value {value!r:.40} of {image.name} is not a number") from None
