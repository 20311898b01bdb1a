"""tessera and geoemb: properties of groups of embeddings, and how stored integers are converted to numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from periplus.conventions.context import Reading, mapping, number, texts, whole
from periplus.conventions.meaning import External, Quantization, Reference
from periplus.conventions.node import Node, join
from periplus.errors import FormatError

_REQUIRED = ("type", "dimensions", "model", "source_data", "data_type")


def read_embedding(reading: Reading, group: Node) -> Mapping[str, Any] | None:
    """Properties of a group of embeddings, without their prefix, and under `convention` whose they are."""
    for name in ("geoemb", "tessera"):
        own = {key.partition(":")[2]: value for key, value in group.attributes.items() if key.startswith(f"{name}:")}
        if own and reading.declares(group, name):
            (_check_geoemb if name == "geoemb" else _check_tessera)(reading, group, own)
            return {"convention": name, **own}
    return None


def quantization_of(reading: Reading) -> Quantization | None:
    """How stored values of the array are converted to numbers; None where they are not quantized embeddings."""
    group, node = reading.group, reading.node
    if group is None:
        return None
    stated = read_embedding(reading.of(group), group)
    if stated is None:
        return None
    if stated["convention"] == "tessera":
        if node.name != "embeddings":
            return None
        return _by_array(reading, group, "scales", "float32", "per_pixel_scale")
    found = mapping(stated.get("quantization"))
    if found is None or not _is_data(node, stated, found):
        return None
    scale = mapping(found.get("scale"))
    dtype = found.get("original_dtype") if isinstance(found.get("original_dtype"), str) else "float32"
    method = found.get("method") if isinstance(found.get("method"), str) else ""
    if scale is None:
        return None
    if "array_name" in scale:
        name = scale["array_name"]
        return _by_array(reading, group, name if isinstance(name, str) else "", str(dtype), str(method))
    factor, offset = number(scale.get("scale")), number(scale.get("offset", 0))
    if factor is None or offset is None:
        reading.note("geoemb.scale", "error", "geoemb:quantization.scale", "a scale is a number", path=group.path)
        return None
    return Quantization(scale=factor, offset=offset, dtype=str(dtype), method=str(method))


def _is_data(node: Node, stated: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Whether an array of the group holds the vectors: of the stored type, with a dimension of their length."""
    scale = mapping(found.get("scale")) or {}
    stored = found.get("quantized_dtype", stated.get("data_type"))
    return (
        node.name != scale.get("array_name")
        and len(node.shape) >= 2
        and stated.get("dimensions") in node.shape
        and (not isinstance(stored, str) or not node.dtype or _plain(node.dtype) == _plain(stored))
    )


def _plain(dtype: str) -> str:
    short = {"i1": "int8", "u1": "uint8", "i2": "int16", "u2": "uint16", "f2": "float16", "f4": "float32"}
    bare = dtype.lstrip("<>|=")
    return short.get(bare, bare)


def _by_array(reading: Reading, group: Node, name: str, dtype: str, method: str) -> Quantization | None:
    node = reading.node
    try:
        found = reading.lookup(join(group.path, name)) if name else None
    except FormatError:
        found = None
    if found is None or found.kind != "array":
        message = f"the array of scales {name[:80]!r} is missing; values stay as they are stored"
        reading.note("ref.missing", "error", "scales", message)
        return None
    dims = found.dims if None not in found.dims and len(found.dims) == len(found.shape) else ()
    fits = {str(dim): size for dim, size in zip(node.dims, node.shape, strict=False)}
    if not dims or any(fits.get(str(dim)) != size for dim, size in zip(dims, found.shape, strict=True)):
        if found.shape != node.shape[: len(found.shape)] or None in node.dims[: len(found.shape)]:
            message = f"scales of shape {list(found.shape)} do not fit embeddings of {list(node.shape)}"
            reading.note("geoemb.scale", "error", "scales", message)
            return None
        dims = node.dims[: len(found.shape)]
    named = tuple(str(dim) for dim in dims)
    scale = External(reference=Reference(path=found.path), dims=named, shape=found.shape)
    return Quantization(scale=scale, dtype=dtype, method=method)


def _check_tessera(reading: Reading, group: Node, own: Mapping[str, Any]) -> None:
    zone = any(key in own for key in ("utm_zone", "n_bands", "n_tiles", "model_version"))
    needed = ("dataset_version", "year") + (("utm_zone", "n_bands", "n_tiles", "model_version") if zone else ())
    _needs(reading, group, own, "tessera", needed)
    for key, low, high in (("year", 1970, 9999), ("utm_zone", 1, 60), ("n_bands", 1, 1 << 31), ("n_tiles", 0, 1 << 62)):
        if key in own and (whole([own[key]]) is None or not low <= own[key] <= high):
            message = f"tessera:{key} is a whole number of at least {low}"
            reading.note("tessera.value", "error", f"tessera:{key}", message, path=group.path)


def _check_geoemb(reading: Reading, group: Node, own: Mapping[str, Any]) -> None:
    _needs(reading, group, own, "geoemb", _REQUIRED + (("chip_layout",) if own.get("type") == "chip" else ()))

    def wrong(key: str, message: str) -> None:
        reading.note("geoemb.value", "error", f"geoemb:{key}", message, path=group.path)

    if own.get("type", "pixel") not in ("pixel", "chip"):
        wrong("type", "geoemb:type is pixel or chip")
    if "dimensions" in own and (whole([own["dimensions"]]) is None or own["dimensions"] < 1):
        wrong("dimensions", "geoemb:dimensions is a whole number of at least 1")
    if "source_data" in own and not texts(own["source_data"]):
        wrong("source_data", "geoemb:source_data is a list of at least one URI")
    if "gsd" in own and not (number(own["gsd"]) or 0) > 0:
        wrong("gsd", "geoemb:gsd is a number above 0")
    if own.get("spatial_layout", "global") not in ("utm_zones", "global"):
        wrong("spatial_layout", "geoemb:spatial_layout is utm_zones or global")
    if "quantization" in own:
        found = mapping(own["quantization"])
        if found is None or not {"method", "original_dtype"} <= found.keys():
            wrong("quantization", "geoemb:quantization is an object with method and original_dtype")


def _needs(reading: Reading, group: Node, own: Mapping[str, Any], name: str, needed: tuple[str, ...]) -> None:
    for key in needed:
        if key not in own:
            reading.note(f"{name}.missing", "error", f"{name}:{key}", f"{name}:{key} is required", path=group.path)
