"""multiscales: layout items of all published drafts, in one form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from periplus.conventions.context import Reading, mapping, number, numbers, whole
from periplus.conventions.node import Node, join
from periplus.conventions.spatial.grid import read_transform, upgraded
from periplus.errors import FormatError
from periplus.model import Transform

Numbers: TypeAlias = tuple[float, ...]
MOST_LEVELS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutItem:
    """One level as the layout declares it."""

    asset: str
    path: str
    where: str
    derived_from: str | None = None
    scale: Numbers | None = None
    translation: Numbers | None = None
    transform: Transform | None = None
    shape: tuple[int, int] | None = None
    resampling: str | None = None
    properties: Mapping[str, Any] = field(default_factory=dict)
    """Its `spatial:` keys."""


def items(reading: Reading, group: Node) -> list[LayoutItem]:
    """The levels of a group that declares multiscales, in the order written; each asset once."""
    found: dict[str, LayoutItem] = {}
    for n, (raw, where) in enumerate(_raw(reading, group)):
        if n >= MOST_LEVELS:
            reading.note("multiscales.many", "error", "multiscales", f"more than {MOST_LEVELS} levels are not read")
            break
        item = _item(reading, group, raw, where)
        if item is None:
            continue
        if item.path in found:
            reading.note("multiscales.repeated", "error", where, f"asset {item.asset!r} is listed twice")
        else:
            found[item.path] = item
    return list(found.values())


def _raw(reading: Reading, group: Node) -> Iterator[tuple[Mapping[str, Any], str]]:
    value = group.attributes.get("multiscales")
    if isinstance(value, list | tuple):
        yield from _listed(reading, value)
        return
    found = mapping(value)
    if found is None:
        reading.note("multiscales.malformed", "error", "multiscales", "multiscales is an object with `layout`")
        return
    layout = found.get("layout")
    if layout is None and "tile_matrix_set" in found:
        yield from _tiled(reading, group, found)
    elif isinstance(layout, Mapping):
        message = "the layout is an object; its keys are taken for assets"
        reading.note("multiscales.layout-object", "warning", "multiscales.layout", message, "write a list")
        for key, item in layout.items():
            yield {"asset": str(key), **(mapping(item) or {})}, f"multiscales.layout.{key}"
    elif isinstance(layout, list | tuple) and layout:
        for n, item in enumerate(layout):
            where = f"multiscales.layout[{n}]"
            if isinstance(item, str):
                reading.note("multiscales.item-text", "warning", where, "an item is a mere text", "write an object")
                yield {"asset": item}, where
            elif mapping(item) is None:
                reading.note("multiscales.malformed", "error", where, "a layout item is an object")
            else:
                yield item, where
    else:
        reading.note("multiscales.malformed", "error", "multiscales.layout", "the layout is a list of levels")


def _listed(reading: Reading, value: Any) -> Iterator[tuple[Mapping[str, Any], str]]:
    """A list of images, each with `datasets`: OME-Zarr's form, which pyramids of maps once used."""
    message = "multiscales is a list, as in OME-Zarr; the datasets of its first entry are taken for levels"
    reading.note("multiscales.list-form", "warning", "multiscales", message, "write an object with `layout`")
    first = mapping(value[0]) if value else None
    datasets = None if first is None else first.get("datasets")
    if not isinstance(datasets, list | tuple):
        reading.note("multiscales.malformed", "error", "multiscales", "there is no list of datasets")
        return
    for n, item in enumerate(datasets):
        path = (mapping(item) or {}).get("path")
        if isinstance(path, str | int):
            yield {"asset": str(path)}, f"multiscales[0].datasets[{n}]"


def _tiled(reading: Reading, group: Node, found: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str]]:
    """GeoZarr 0.4: a TileMatrixSet whose matrices are levels."""
    where = "multiscales.tile_matrix_set"
    reading.note(
        "multiscales.tile-matrix-set", "warning", where, "a TileMatrixSet, as in GeoZarr 0.4, is taken for levels"
    )
    matrices = (mapping(found["tile_matrix_set"]) or {}).get("tileMatrices")
    if not isinstance(matrices, list | tuple):
        limits = mapping(found.get("tile_matrix_limits")) or {}
        names = [str(name) for name in limits] or [name for name in group.members if name.isdigit()]
        yield from (({"asset": name}, where) for name in names)
        return
    for n, one in enumerate(matrices):
        matrix = mapping(one) or {}
        item: dict[str, Any] = {"asset": str(matrix.get("id", n))}
        cell, origin = number(matrix.get("cellSize")), numbers(matrix.get("pointOfOrigin"), 2)
        if cell and origin is not None:
            item["spatial:transform"] = [cell, 0.0, origin[0], 0.0, -cell, origin[1]]
        yield item, f"{where}.tileMatrices[{n}]"


def _item(reading: Reading, group: Node, raw: Mapping[str, Any], where: str) -> LayoutItem | None:
    item = _renamed(reading, raw, where)
    asset, derived = item.get("asset"), item.get("derived_from")
    path = _path(reading, group, asset, f"{where}.asset")
    if path is None or not isinstance(asset, str):
        return None
    source = None if derived is None else _path(reading, group, derived, f"{where}.derived_from")
    scale, translation = _relative(reading, item, where)
    spatial = {key: value for key, value in item.items() if key.startswith("spatial:") and value is not None}
    spatial = upgraded(reading, group, item, spatial, where)
    transform = spatial.get("spatial:transform")
    shape = None if "spatial:shape" not in spatial else whole(spatial["spatial:shape"])
    if "spatial:shape" in spatial and (shape is None or len(shape) < 2):
        reading.note("spatial.shape", "error", f"{where}.spatial:shape", "spatial:shape is two whole numbers")
        shape = None
    method = item.get("resampling_method")
    return LayoutItem(
        asset=asset,
        path=path,
        where=where,
        derived_from=source,
        scale=scale,
        translation=translation,
        transform=None if transform is None else read_transform(reading, transform, f"{where}.spatial:transform"),
        shape=None if shape is None else (shape[-2], shape[-1]),
        resampling=method if isinstance(method, str) else None,
        properties=spatial,
    )


def _renamed(reading: Reading, raw: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The item with `asset` and `derived_from` for the words that drafts had for them."""
    old = {new: raw[key] for key, new in (("group", "asset"), ("from_group", "derived_from")) if key in raw}
    if old or "factors" in raw or "scale" in raw:
        message = "group, from_group, factors and scale are of drafts of 2025"
        reading.note("multiscales.old-keys", "info", where, message, "write asset, derived_from and transform.scale")
    return {**old, **raw}


def _relative(reading: Reading, item: Mapping[str, Any], where: str) -> tuple[Numbers | None, Numbers | None]:
    """Scale and translation from the level that an item derives from; in drafts they are not within `transform`."""
    inner = mapping(item.get("transform")) or {}
    if "transform" in item and mapping(item["transform"]) is None:
        reading.note("multiscales.malformed", "error", f"{where}.transform", "transform is an object")
    elif item.get("derived_from") is not None and not {"transform", "scale", "factors"} & item.keys():
        reading.note("multiscales.transform-missing", "error", where, "derived_from without transform")

    def read(key: str, value: Any) -> Numbers | None:
        found = None if value is None else numbers(value)
        if value is not None and (found is None or (key == "scale" and min(found or (0,)) <= 0)):
            reading.note(
                "multiscales.malformed", "error", f"{where}.transform.{key}", f"{key} is not a list of numbers"
            )
            return None
        return found

    scale = inner.get("scale", item.get("scale", item.get("factors")))
    return read("scale", scale), read("translation", inner.get("translation", item.get("translation")))


def _path(reading: Reading, group: Node, asset: Any, where: str) -> str | None:
    if not isinstance(asset, str) or not asset:
        reading.note("multiscales.malformed", "error", where, "an asset is a text")
        return None
    if asset.startswith("/") or ".." in asset.split("/"):
        reading.note("multiscales.asset-path", "error", where, f"{asset[:200]!r} is not a path below the group")
        return None
    if asset != "." and ("" in asset.split("/") or "." in asset.split("/")):
        reading.note("multiscales.asset-form", "info", where, f"{asset[:200]!r} is not in its plainest form")
    try:
        return join(group.path, asset)
    except FormatError as error:
        reading.note("multiscales.asset-path", "error", where, error.message)
        return None
