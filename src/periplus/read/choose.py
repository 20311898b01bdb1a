"""Choose: which image, times and bands of a catalog a question means. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError, MissingError, some
from periplus.model import Array, Catalog
from periplus.table.moments import time_coordinate, within

Bands = int | str | Sequence[int | str]


def images(catalog: Catalog) -> list[str]:
    """The names of all images: what has rows and columns, and is no mask."""
    pyramids = catalog.pyramids().items()
    return [name for name, (finest, *_) in pyramids if finest.ndim >= 2 and not finest.is_mask]


def pick(catalog: Catalog, name: str | None) -> tuple[list[Array], Array]:
    """The levels of an image by its name (`data`, `a/data`, its group `a`), and the level named or the finest."""
    pyramids = catalog.pyramids()
    if name is None:
        found = images(catalog)
        name = "data" if "data" in found else only(found, f"this index has {len(found) or 'no'} images")
    for asked in (name, f"{name.strip('/')}/data"):  # a group stands for the image in it
        if asked in catalog.arrays:
            image = catalog.arrays[asked]
            return pyramids[image.pyramid], image
        if asked in pyramids:
            return pyramids[asked], pyramids[asked][0]
    raise MissingError(f"no image or array {name!r}; this index has {some(pyramids, like=name)}")


def only(names: list[str], among: str) -> str:
    """The one image of these; MissingError, with the names, where they are more or none."""
    if len(names) != 1:
        raise MissingError(among + (f"; name one by array=: {some(names)}" if names else ""))
    return names[0]


def time_key(catalog: Catalog, image: Array, time: Any, keys: list[Any]) -> dict[str, NDArray[Any]]:
    """Sets the key of the time dimension; the coordinates along all dimensions that have one, as selected."""
    if time is not None:
        moments = time_coordinate(catalog, image)
        if moments is None:
            raise MissingError(f"{image.name} has no times; its dimensions are {', '.join(image.dims)}")
        found = _positions(moments.values, time)
        whole = found[-1] - found[0] + 1 == len(found)
        keys[image.dims.index(moments.dims[0])] = slice(int(found[0]), int(found[-1]) + 1) if whole else found.tolist()
    known = catalog.coordinates_of(image)
    return {
        dim: np.asarray(known[dim].values)[keys[d]]
        for d, dim in enumerate(image.dims)
        if dim in known and known[dim].dims == (dim,)
    }


def _positions(moments: NDArray[Any], time: Any) -> NDArray[np.int64]:
    """Positions, in the order of the coordinate, that `time` means; MissingError where there is none."""
    found = np.flatnonzero(within(moments, time))
    if not found.size:
        known = moments[~np.isnat(moments)]
        reach = f"they reach from {known.min()} to {known.max()}" if known.size else "there are none"
        raise MissingError(f"nothing at the time {_shown(time)}; of the times known {reach}")
    return found


def _shown(time: Any) -> str:
    ends = (time.start, time.stop) if isinstance(time, slice) else time
    return " to ".join(".." if t is None else str(t) for t in ends) if isinstance(ends, tuple | list) else str(ends)


def band_key(image: Array, bands: Bands | None, keys: list[Any]) -> tuple[tuple[str, ...], int | slice | list[int]]:
    """Sets the key of the bands dimension; the names of the bands read, and that key."""
    told = image.attributes.get("band_names")
    names = [str(name) for name in told] if isinstance(told, list | tuple) else []
    if bands is None:
        return tuple(names), slice(None)
    if "bands" not in image.dims:
        raise MissingError(f"{image.name} has no bands; its dimensions are {', '.join(image.dims)}")
    d = image.dims.index("bands")
    single = isinstance(bands, str | Integral)
    asked: Sequence[Any] = [bands] if single else list(bands)  # type: ignore[arg-type]
    numbers = [_band(image, band, names, image.shape[d]) for band in asked]
    runs = numbers and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    keys[d] = numbers[0] if single else slice(numbers[0], numbers[-1] + 1) if runs else numbers
    return tuple(names[n] for n in numbers if n < len(names)), keys[d]


def _band(image: Array, band: int | str, names: list[str], count: int) -> int:
    if isinstance(band, str):
        if not band or band not in names:
            known = some(names, like=band) if names else "no named bands"
            raise MissingError(f"{image.name} has no band {band!r}; it has {known}")
        if names.count(band) > 1:
            places = ", ".join(str(n) for n, name in enumerate(names) if name == band)
            raise ValueError(f"{image.name} has several bands named {band!r}; choose one by number: {places}")
        return names.index(band)
    if not -count <= band < count:
        raise IndexError(f"band {band} is out of bounds: {image.name} has {count}, counted from 0")
    return int(band) % count


def nodata_of(image: Array, bands: int | slice | list[int]) -> Any:
    """The value that means no data; where the bands differ, a list of those of the bands read, or that of the one."""
    value = image.attributes.get("_FillValue")
    if not isinstance(value, list | tuple):
        return _number(image, value)
    each = [_number(image, v) for v in value]
    try:
        return [each[n] for n in bands] if isinstance(bands, list) else each[bands]
    except IndexError:
        raise FormatError(f"{image.name} has {len(each)} nodata values, fewer than bands") from None


def _number(image: Array, value: Any) -> Any:
    """JSON has no NaN; Zarr spells it, and the infinities, as text."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        raise FormatError(f"the nodata value {value!r:.40} of {image.name} is no number") from None
