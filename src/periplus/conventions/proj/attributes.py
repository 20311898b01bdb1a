"""proj: the CRS that a node declares, by WKT2, else by code, else by PROJJSON; contradictions are findings."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from periplus.conventions.context import Reading, mapping, same
from periplus.conventions.meaning import CrsText
from periplus.conventions.node import Node
from periplus.conventions.proj.crs import describe_crs, same_crs
from periplus.errors import FormatError

FORMS = ("proj:wkt2", "proj:code", "proj:projjson")
GDAL = "_CRS"
GDAL_FORMS: dict[str, Literal["wkt2", "code", "projjson"]] = {"wkt": "wkt2", "projjson": "projjson", "url": "code"}
_URL = re.compile(r"https?://(?:www\.)?opengis\.net/def/crs/([^/]+)/[^/]*/([^/]+)")
_CODE = re.compile(r"[^:\s]+:[^:\s]+")
_WKT = re.compile(r"\s*[A-Za-z_]+\s*[\[(]")
_WKT1 = re.compile(r"\s*(GEOGCS|PROJCS|COMPD_CS|GEOCCS|VERT_CS|LOCAL_CS)\s*[\[(]", re.IGNORECASE)


def has_crs(attributes: Mapping[str, Any]) -> bool:
    """Whether any attribute declares a CRS; null does not."""
    return any(attributes.get(form) is not None for form in (*FORMS, "proj:epsg"))


def crs_of(reading: Reading, node: Node, *, by_group: bool = False) -> CrsText | None:
    """The CRS that a node itself declares; computed once for all nodes that inherit it.

    `by_group`: a group that contains it declares the convention, which is enough.
    """
    if not has_crs(node.attributes) or not (by_group or reading.declares(node, "proj")):
        return None
    if by_group and "proj" not in reading.declared_by(node):
        reading.note("proj.by-group", "info", "zarr_conventions", "declared by a group only", path=node.path)
    key = ("crs", node.path)
    if key not in reading.memo:
        near = reading.of(node)
        reading.memo[key] = (_shared(near, node), near.notes)
    crs, notes = reading.memo[key]
    reading.add(*notes)
    return crs  # type: ignore[no-any-return]


def _shared(reading: Reading, node: Node) -> CrsText | None:
    """The CRS of a node; many declare the same, and comparing attributes is cheaper than parsing again."""
    stated = {key: value for key, value in node.attributes.items() if key.startswith("proj:")}
    last: tuple[Any, CrsText | None] = reading.memo.get("crs", ({}, None))
    if last[1] is not None and same(stated, last[0]):
        return replace(last[1], origin=node.path)
    crs = read_crs(reading, node.attributes, node.path)
    if not reading.notes:
        reading.memo["crs"] = (stated, crs)
    return crs


def gdal_crs(reading: Reading, stated: CrsText | None) -> CrsText | None:
    """The CRS of the attribute `_CRS` that GDAL writes, for an array that has none by a convention."""
    node = reading.node
    found = mapping(node.attributes.get(GDAL)) or {}
    texts = {form: _gdal_text(form, found.get(form)) for form in GDAL_FORMS}
    known = {
        form: text
        for form, text in texts.items()
        if text is not None and _understood(reading, f".{form}", text, node.path, GDAL)
    }
    if not known:
        return None
    form, text = next(iter(known.items()))
    if stated is not None:
        if not same_crs(stated.text, text):
            message = f"it disagrees with the CRS by a convention, {_named(stated.text)}, which is taken"
            reading.note("proj.conflict", "warning", GDAL, message)
        return None
    reading.note("proj.gdal", "info", GDAL, "the CRS is an attribute of GDAL", "write proj:wkt2 too")
    return CrsText(text=text, form=GDAL_FORMS[form], origin=node.path)


def _gdal_text(form: str, value: Any) -> str | None:
    if form == "projjson" and mapping(value):
        return json.dumps(value, default=str)
    if not isinstance(value, str) or not value.strip():
        return None
    url = _URL.fullmatch(value.strip()) if form == "url" else None
    return value.strip() if url is None else f"{url[1]}:{url[2]}"


def read_crs(reading: Reading, attributes: Mapping[str, Any], path: str, where: str = "") -> CrsText | None:
    """The CRS that `proj:` attributes declare; `where` is the path of the attribute that contains them."""
    prefix = f"{where}." if where else ""
    stated: dict[str, str] = {}
    for form in FORMS:
        if (value := attributes.get(form)) is not None:
            text = _text(reading, form, value, path, prefix + form)
            if text is not None:
                stated[form] = text
        elif form in attributes:
            reading.note("proj.null", "info", prefix + form, f"{form} is null", "omit it", path=path)
    epsg = attributes.get("proj:epsg")
    if isinstance(epsg, int) and not isinstance(epsg, bool) and not stated:
        reading.note("proj.epsg", "warning", prefix + "proj:epsg", "proj:epsg is STAC's", "write proj:code", path=path)
        stated["proj:code"] = f"EPSG:{epsg}"
    understood = {form: text for form, text in stated.items() if _understood(reading, form, text, path, prefix)}
    if not understood:
        return None
    chosen = next(iter(understood))
    code = understood.get("proj:code")
    for form, text in understood.items():
        if form != chosen and not same_crs(understood[chosen], text):
            short = chosen.partition(":")[2]
            reading.note(
                "proj.conflict",
                "warning",
                prefix + form,
                f"{form} and {chosen} disagree: {_named(text)} and {_named(understood[chosen])}; {short} is taken",
                path=path,
            )
            code = None if form == "proj:code" else code
    if chosen == "proj:code":
        hint = "write proj:wkt2 too"
        reading.note("proj.code-only", "info", prefix + chosen, "the CRS is a mere code", hint, path=path)
    return CrsText(text=understood[chosen], form=chosen.partition(":")[2], code=code, origin=path)  # type: ignore[arg-type]


def _text(reading: Reading, form: str, value: Any, path: str, where: str) -> str | None:
    if form == "proj:projjson":
        if isinstance(value, str):
            reading.note("proj.projjson-text", "info", where, "PROJJSON is given as text", "write an object", path=path)
            return value
        if mapping(value) is not None:
            return _dumped(reading, value, path, where)
        reading.note("proj.malformed", "error", where, "proj:projjson is an object", path=path)
        return None
    if isinstance(value, int) and not isinstance(value, bool) and form == "proj:code":
        reading.note("proj.code-form", "warning", where, f"proj:code is the number {value}", f"EPSG:{value}", path=path)
        return f"EPSG:{value}"
    if not isinstance(value, str) or not value.strip():
        reading.note("proj.malformed", "error", where, f"{form} is a text", path=path)
        return None
    if form == "proj:code" and not _CODE.fullmatch(value.strip()):
        message = f"{value[:80]!r} is not a code of the form AUTHORITY:CODE"
        reading.note("proj.code-form", "warning", where, message, path=path)
    if form == "proj:wkt2" and not _WKT.match(value):
        message = f"{value.strip()[:80]!r} is not WKT; it is read as another form of a CRS"
        reading.note("proj.wkt2-form", "warning", where, message, "write WKT2, or use proj:code", path=path)
    if form == "proj:wkt2" and _WKT1.match(value):
        reading.note("proj.wkt1", "info", where, "proj:wkt2 holds the older WKT1", "write WKT2:2019", path=path)
    return value.strip()


def _dumped(reading: Reading, value: Any, path: str, where: str) -> str | None:
    try:
        return json.dumps(value, default=str)
    except (RecursionError, ValueError):
        reading.note("proj.malformed", "error", where, "proj:projjson is too deep for any CRS", path=path)
        return None


def _understood(reading: Reading, form: str, text: str, path: str, prefix: str) -> bool:
    try:
        describe_crs(text)
    except FormatError as error:
        reading.note("proj.unknown", "error", prefix + form, f"the CRS is not understood: {error.message}", path=path)
        return False
    return True


def _named(text: str) -> str:
    described = describe_crs(text)
    return described.code or str(described.projjson.get("name", "a CRS"))
