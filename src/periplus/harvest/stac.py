"""STAC items from JSON or GeoParquet, and the assets of an item to index; no I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from periplus.errors import FormatError
from periplus.parse.json import parse_json

Item: TypeAlias = Mapping[str, Any]
Assets: TypeAlias = str | Sequence[str] | Callable[[str, Mapping[str, Any]], bool] | None
"""Names of assets (`*` is a wildcard), or a function of the name and description of an asset."""

COLUMNS = ("id", "assets", "links", "datetime", "start_datetime")
_GEOTIFF = ("image/tiff", "image/vnd.stac.geotiff")
_SUFFIXES = (".tif", ".tiff", ".gtiff", ".gtif")
_NOT_DATA = frozenset({"thumbnail", "overview", "metadata"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """One file of an item."""

    href: str
    datetime: datetime | None
    group: str
    series: str | None


def items_of(data: bytes, url: str) -> list[Item]:
    """Items of a STAC Item, ItemCollection or API response."""
    document = parse_json(data, what="the list of STAC items", url=url)
    kind = document.get("type") if isinstance(document, dict) else None
    if kind == "Feature":
        items = [document]
    elif kind == "FeatureCollection":
        items = document.get("features")
    elif kind in ("Catalog", "Collection"):
        raise FormatError(f"this is a STAC {kind}, which has no assets to index; give its items", url=url)
    else:
        raise FormatError("this JSON is neither a STAC Item nor an ItemCollection", url=url)
    if not isinstance(items, list) or not all(isinstance(i, dict) and isinstance(i.get("assets"), dict) for i in items):
        raise FormatError("not every feature has assets, so these are not STAC items", url=url)
    return items


def choose(item: Item, assets: Assets, url: str) -> list[Asset]:
    """The assets to index; without a choice, the only GeoTIFF with data."""
    described = {name: asset for name, asset in _mapping(item, "assets").items() if isinstance(asset, Mapping)}
    several = True
    if assets is None:
        names = [_only(item, described, url)]
        several = False
    elif callable(assets):
        names = [name for name, asset in described.items() if assets(name, asset)]
    else:
        wanted = [assets] if isinstance(assets, str) else list(assets)
        several = len(wanted) != 1 or "*" in wanted[0] or "?" in wanted[0]
        names = [name for name in described if any(fnmatchcase(name, each) for each in wanted)]
    identity = str(item.get("id") or "item")
    moment = _moment(item, url)
    result = []
    for name in names:
        href = described[name].get("href")
        if not isinstance(href, str) or not href:
            raise FormatError(f"asset {name!r} of item {identity!r} has no href", url=url)
        group = f"{identity}/{name}" if several else identity
        result.append(Asset(href=href, datetime=moment, group=group, series=name if several else None))
    return result


def base_of(item: Item, url: str, *, alone: bool) -> str:
    """The base of relative hrefs: the document, or the self link of an item in a document of several."""
    if alone:
        return url
    for link in _listed(item, "links"):
        if isinstance(link, Mapping) and link.get("rel") == "self" and "://" in str(link.get("href")):
            return str(link["href"])
    return url


def asset_names(items: Sequence[Item], most: int = 12) -> str:
    """Names of assets, for messages."""
    names = list(dict.fromkeys(name for item in items[:100] for name in _mapping(item, "assets")))
    return ", ".join(names[:most]) + (", …" if len(names) > most else "") if names else "none"


def _only(item: Item, described: Mapping[str, Mapping[str, Any]], url: str) -> str:
    found = [name for name, asset in described.items() if _is_geotiff(asset)]
    data = [name for name in found if "data" in _roles(described[name])]
    plain = [name for name in found if not _NOT_DATA & _roles(described[name])]
    chosen = data or plain
    if len(chosen) == 1:
        return chosen[0]
    what = f"item {str(item.get('id'))!r}"
    if chosen:
        raise FormatError(
            f"{what} has {len(chosen)} GeoTIFF assets ({', '.join(chosen)}); choose with assets=[...]", url=url
        )
    raise FormatError(f"{what} has no GeoTIFF asset; its assets are {asset_names([item])}", url=url)


def _is_geotiff(asset: Mapping[str, Any]) -> bool:
    kind = asset.get("type")
    if isinstance(kind, str) and kind:
        return kind.lower().startswith(_GEOTIFF)
    return str(asset.get("href")).partition("?")[0].partition("#")[0].lower().endswith(_SUFFIXES)


def _roles(asset: Mapping[str, Any]) -> set[str]:
    return {role for role in _listed(asset, "roles") if isinstance(role, str)}


def _listed(fields: Mapping[str, Any], name: str) -> Sequence[Any]:
    """A list in a document, or an empty one."""
    value = fields.get(name)
    return value if isinstance(value, list | tuple) else ()


def _mapping(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = fields.get(name)
    return value if isinstance(value, Mapping) else {}


def _moment(item: Item, url: str) -> datetime | None:
    properties = item.get("properties")
    fields = properties if isinstance(properties, Mapping) else item  # stac-geoparquet has no `properties`
    value = fields.get("datetime") or fields.get("start_datetime")
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            value = None
    try:
        if isinstance(value, datetime):
            return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError:
        pass  # a time at the limits of the calendar cannot be converted to UTC
    raise FormatError(f"item {str(item.get('id'))!r} has no readable datetime", url=url)
