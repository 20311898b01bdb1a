"""uom: units of measurement, as objects with a UCUM unit, to the text that CF calls units."""

from __future__ import annotations

from typing import Any

from periplus.conventions.context import Reading, mapping, shown


def unit_text(reading: Reading, value: Any, where: str) -> str | None:
    """The unit of a string or a uom object; "1" where the object has none."""
    if isinstance(value, str):
        return value
    found = mapping(value)
    if found is None:
        reading.note("uom.malformed", "error", where, "a unit is a text or an object with `ucum`")
        return None
    if "ucum" not in found and (inner := mapping(found.get("uom"))) is not None:
        found = inner
    if not found.keys() & {"ucum", "unit"}:
        reading.note("uom.malformed", "error", where, "a unit is an object with `ucum`")
        return None
    ucum = found.get("ucum", found)
    if "ucum" not in found:
        reading.note("uom.unwrapped", "warning", where, "`ucum` is missing", 'write {"ucum": {"unit": …}}')
    if isinstance(ucum, str):
        reading.note("uom.unwrapped", "warning", where, "`ucum` is a mere text", 'write {"ucum": {"unit": …}}')
        return ucum
    inner = mapping(ucum)
    unit = "1" if inner is None else inner.get("unit", "1")
    if inner is None or not isinstance(unit, str):
        reading.note("uom.malformed", "error", where, "`ucum` is an object whose `unit` is a text")
        return None
    return unit


def array_units(reading: Reading) -> dict[str, str]:
    """Attributes that the `uom` of an array adds to it; units it has in CF's way stay."""
    node = reading.node
    if "uom" not in node.attributes or not reading.declares(node, "uom"):
        return {}
    unit = unit_text(reading, node.attributes["uom"], "uom")
    if unit is None:
        return {}
    own = node.attributes.get("units")
    if own is not None:
        if own != unit:
            reading.note("uom.units", "info", "units", f"units {shown(own)} are kept; uom declares {unit[:80]!r}")
        return {}
    added = {"units": unit}
    about = (mapping(node.attributes["uom"]) or {}).get("description")
    if isinstance(about, str) and about and "long_name" not in node.attributes:
        added["units_description"] = about
    return added
