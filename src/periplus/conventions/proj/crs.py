"""Coordinate reference systems: what a CRS text means, boxes from one CRS to another, CF grid mappings."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from periplus.conventions.cf.encode import control_points, geotransform
from periplus.errors import FormatError, MissingError
from periplus.model import BBox, Georeference, Transform

if TYPE_CHECKING:
    from pyproj import CRS, Transformer

LONGEST_TEXT = 1 << 20
"""Characters of a CRS text that we are willing to parse."""
_FORMS = re.compile(r"\s*(\{|[A-Za-z_]+\s*[\[(]|\+?proj=|[A-Za-z]\w*:[\w.:+]+\s*$|\d+\s*$)")
"""PROJJSON, WKT, PROJ text, authority code or URN, EPSG number. No bare names: PROJ would search its registry."""
_LATTICE = 21
"""Points a side at which a box is checked: GDAL's own default for densified edges."""


class SupportsWkt(Protocol):
    """A CRS of pyproj, rasterio or odc-geo."""

    def to_wkt(self) -> str:
        """Its text."""
        ...


CrsLike = str | int | SupportsWkt
"""A CRS as a string, an EPSG number, or an object of another library."""


def crs_text(crs: CrsLike | None) -> str | None:
    """The CRS that a user passes, as text; ValueError where it is not valid."""
    if crs is None:
        return None
    if isinstance(crs, int | np.integer) and not isinstance(crs, bool):
        text = f"EPSG:{crs}"
    elif isinstance(crs, str):
        text = crs
    elif callable(getattr(crs, "to_wkt", None)):
        text = crs.to_wkt()  # type: ignore[union-attr]
    else:
        raise TypeError(f"a CRS is text, an EPSG number or a CRS of pyproj or rasterio, not {crs!r}")
    try:
        described = describe_crs(text)
    except FormatError as error:
        raise ValueError(f"{error.message}; write for example EPSG:4326") from None
    return text if isinstance(crs, str) else described.code or text


@dataclass(frozen=True, slots=True, kw_only=True)
class Crs:
    """What a CRS text means."""

    wkt2: str
    """WKT2:2019."""
    code: str | None
    """Authority code such as EPSG:32633, only where the CRS is exactly that one."""
    projjson: Mapping[str, Any]
    is_geographic: bool
    """Whether coordinates are longitude and latitude."""
    units: str
    """Unit of the horizontal axes, for example `metre` or `degree`; empty where it is unknown."""


@lru_cache(maxsize=128)
def describe_crs(text: str) -> Crs:
    """The CRS an authority code, WKT, PROJJSON or PROJ text names; FormatError where it names none."""
    crs = _crs(text)
    authority = crs.to_authority(min_confidence=100)
    return Crs(
        wkt2=crs.to_wkt(),
        code=None if authority is None else ":".join(authority),
        projjson=crs.to_json_dict(),
        is_geographic=crs.is_geographic,
        units=crs.axis_info[0].unit_name if crs.axis_info else "",
    )


def in_degrees(text: str) -> bool:
    """Whether x of a CRS are longitudes in degrees, which repeat after a turn; not where the CRS is unknown."""
    try:
        crs = describe_crs(text)
    except FormatError:
        return False
    return crs.is_geographic and crs.units == "degree"


@lru_cache(maxsize=256)
def same_crs(one: str, other: str) -> bool:
    """Whether two CRS texts mean one CRS: names, identifiers and the order of axes aside, as coordinates are (x, y)."""
    first, second = _crs(one), _crs(other)
    if first.equals(second, ignore_axis_order=True):
        return True
    # A text without identifiers may name an ensemble's datum in its own way: what the database takes it for counts.
    codes = [crs.to_authority(min_confidence=70) for crs in (first, second)]
    return codes[0] is not None and codes[0] == codes[1]


def crs_from_cf(attributes: Mapping[str, Any]) -> str | None:
    """The CRS of a CF grid mapping as text; None where it has none."""
    for key in ("crs_wkt", "spatial_ref"):
        if isinstance(text := attributes.get(key), str) and text.strip():
            _crs(text)
            return text.strip()
    name = attributes.get("grid_mapping_name")
    if not isinstance(name, str):
        return None
    from pyproj.exceptions import CRSError

    try:
        return str(_pyproj().CRS.from_cf(dict(attributes)).to_wkt())
    except (CRSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"the grid mapping {_short(name)!r} is not understood") from error


def agrees_with_cf(text: str, attributes: Mapping[str, Any]) -> bool | None:
    """Whether a CF grid mapping states the CRS of a text; None where it states none that is understood.

    Without WKT, only the parameters that it has are compared.
    """
    try:
        stated = crs_from_cf(attributes)
        if stated is None or same_crs(text, stated):
            return None if stated is None else True
    except FormatError:
        return None
    if stated in (str(attributes.get(key)).strip() for key in ("crs_wkt", "spatial_ref")):
        return False
    mine, name = _cf(text), "grid_mapping_name"
    numbers = [key for key in attributes if key in mine and "_name" not in key]
    return mine.get(name, attributes[name]) == attributes[name] and not any(
        _unequal(attributes[key], mine[key]) for key in numbers
    )


def _unequal(stated: Any, mine: Any) -> bool:
    try:
        return not np.allclose(np.asarray(stated, np.float64), mine, rtol=1e-6, atol=1e-9)
    except (TypeError, ValueError):
        return False


def reproject_bbox(bbox: BBox, from_crs: str, to_crs: str, *, partly: bool = False) -> BBox:
    """The smallest upright box in `to_crs` around a box in `from_crs`; x before y in both, edges densified.

    FormatError where part of the box has no place in `to_crs`, or where the result would cross the antimeridian;
    MissingError where no way leads to `to_crs`, which may be of another planet, or nothing that PROJ understands.
    A geographic box may itself cross it, with xmin greater than xmax as in GeoJSON. With `partly` it is, give or take a
    little, the box around what has a place: of a picture of the whole Earth's disc the ground that is seen.
    """
    if partly:
        return _part(bbox, from_crs, to_crs)
    source = _crs(from_crs)
    xmin, ymin, xmax, ymax = _checked(bbox, wraps=source.is_geographic)
    try:
        target = _crs(to_crs)
    except FormatError as error:
        raise MissingError(f"no way from {_short(from_crs)}: {error.message}") from error
    if source == target and xmin <= xmax:
        return xmin, ymin, xmax, ymax
    transformer = _transformer(from_crs, to_crs)
    left, bottom, right, top = transformer.transform_bounds(xmin, ymin, xmax, ymax, densify_pts=_LATTICE)
    # Edges alone are not proof: the edges of the whole world have a place in UTM, its middle does not.
    columns = np.linspace(xmin, xmax + 360 if xmax < xmin else xmax, _LATTICE)
    xs, ys = np.meshgrid(columns, np.linspace(ymin, ymax, _LATTICE))
    x, y = transformer.transform(xs.ravel(), ys.ravel())
    if not (math.isfinite(left + bottom + right + top) and np.isfinite(x).all() and np.isfinite(y).all()):
        raise FormatError(f"the box {bbox} reaches beyond where {_short(to_crs)} is defined; take a smaller one")
    if left > right:
        raise FormatError(f"the box {bbox} crosses the antimeridian in {_short(to_crs)}; take each side on its own")
    return min(left, float(x.min())), min(bottom, float(y.min())), max(right, float(x.max())), max(top, float(y.max()))


def reproject_points(points: NDArray[np.float64], from_crs: str, to_crs: str) -> NDArray[np.float64]:
    """(n, 2) points in another CRS; infinite where they have no place there."""
    x, y = _transformer(from_crs, to_crs).transform(points[:, 0], points[:, 1], errcheck=False)
    return np.stack([x, y], axis=1)


def _part(bbox: BBox, from_crs: str, to_crs: str) -> BBox:
    """A box around those points of a lattice that have a place in `to_crs`; MissingError where none has."""
    xmin, ymin, xmax, ymax = _checked(bbox, wraps=False)
    xs, ys = np.meshgrid(np.linspace(xmin, xmax, _LATTICE), np.linspace(ymin, ymax, _LATTICE))
    x, y = _transformer(from_crs, to_crs).transform(xs.ravel(), ys.ravel())
    seen = np.isfinite(x) & np.isfinite(y)
    if not seen.any():
        raise MissingError(f"nothing of the box {bbox} in {_short(from_crs)} has a place in {_short(to_crs)}")
    left, bottom, right, top = (float(v) for v in (x[seen].min(), y[seen].min(), x[seen].max(), y[seen].max()))
    # The edge is between two of the points.
    across, along = (right - left) / (_LATTICE - 1), (top - bottom) / (_LATTICE - 1)
    return left - across, bottom - along, right + across, top + along


def grid_mapping(text: str | None, transform: Transform | None) -> dict[str, Any]:
    """Attributes of a CF grid mapping variable, with the additions by which rioxarray and GDAL find CRS and transform.

    Either may be unknown; what is known is written.
    """
    attributes: dict[str, Any] = {} if text is None else dict(_cf(text))
    if transform is not None:
        attributes["GeoTransform"] = geotransform(transform)
    return attributes


def georeference_attributes(place: Georeference) -> tuple[dict[str, Any], FormatError | None]:
    """Attributes of the CF grid mapping of a georeference, with its control points and RPCs.

    And the error of a CRS that PROJ does not know: pixels can be read without it, and its text is kept.
    """
    unknown = None
    try:
        attributes = grid_mapping(place.crs, place.transform)
    except FormatError as error:
        unknown = error
        attributes = {**grid_mapping(None, place.transform), "unknown_crs": place.crs}
    if place.gcps:
        attributes["gcps"] = control_points(place.gcps)
    if place.rpc is not None:
        attributes["rpc"] = json.dumps(dict(place.rpc), default=str)
    return attributes, unknown


def axis_attributes(text: str) -> dict[str, dict[str, str]]:
    """CF attributes (axis, standard_name, long_name, units) of the `x` and `y` coordinates of a CRS."""
    return {name: dict(words) for name, words in _axes(text).items()}


@lru_cache(maxsize=128)
def _axes(text: str) -> Mapping[str, Mapping[str, str]]:
    axes = {str(axis.get("axis", "")).lower(): dict(axis) for axis in _crs(text).cs_to_cf()}
    return {name: axes[name] for name in ("x", "y")} if {"x", "y"} <= set(axes) else {"x": {}, "y": {}}


@lru_cache(maxsize=128)
def _cf(text: str) -> Mapping[str, Any]:
    crs = _crs(text)
    wkt = crs.to_wkt()
    operation = crs.coordinate_operation
    # CF attributes cannot express the rotation of an oblique Mercator grid; only the WKT is correct.
    oblique = operation is not None and "oblique mercator" in operation.method_name.lower()
    named = {} if oblique else crs.to_cf()
    return {**named, "crs_wkt": wkt, "spatial_ref": wkt}


@lru_cache(maxsize=128)
def _crs(text: str) -> CRS:
    from pyproj.exceptions import CRSError

    if len(text) > LONGEST_TEXT:
        raise FormatError(f"a CRS text of {len(text)} characters is longer than any CRS")
    if "init=" in text:
        # PROJ would look for a file of that name; an index must not make us open files.
        raise FormatError("a CRS given as `init=` names a file; give an authority code such as EPSG:4326")
    if not _FORMS.match(text):
        raise FormatError(f"{_short(text)!r} is not an authority code, WKT, PROJJSON or PROJ text")
    try:
        return _pyproj().CRS.from_user_input(text)  # type: ignore[no-any-return]
    except (CRSError, UnicodeError, RecursionError) as error:
        raise FormatError(f"{_short(text)!r} is not a coordinate reference system") from error


@lru_cache(maxsize=64)
def _transformer(from_crs: str, to_crs: str) -> Transformer:
    from pyproj.exceptions import ProjError

    try:
        return _pyproj().Transformer.from_crs(_crs(from_crs), _crs(to_crs), always_xy=True)  # type: ignore[no-any-return]
    except ProjError as error:
        raise MissingError(f"no way from {_short(from_crs)} to {_short(to_crs)}") from error


@lru_cache(maxsize=1)
def _pyproj() -> Any:
    import pyproj
    from pyproj import network

    # A CRS text must not cause requests: grids come from the installation or not at all.
    network.set_network_enabled(False)  # type: ignore[attr-defined]
    return pyproj


def _checked(bbox: BBox, *, wraps: bool) -> BBox:
    if len(bbox) != 4 or not all(math.isfinite(v) for v in bbox):
        raise ValueError(f"a box is four finite numbers (xmin, ymin, xmax, ymax), not {bbox}")
    xmin, ymin, xmax, ymax = (float(v) for v in bbox)
    if ymin > ymax or (xmin > xmax and not wraps):
        raise ValueError(f"the box {bbox} is invalid; it must be (xmin, ymin, xmax, ymax), x before y")
    return xmin, ymin, xmax, ymax


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
