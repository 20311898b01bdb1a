"""Profiles: additional requirements of the specification, GDAL, EOPF and the embeddings conventions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from periplus.conventions.diagnostic import Diagnostic, Severity
from periplus.conventions.identity import CONVENTIONS, declared
from periplus.conventions.meaning import Level, Pyramid
from periplus.conventions.node import ROOT, Node
from periplus.validation.checks import StoreMeaning

SHARED: dict[str, Severity] = {
    # That an array has no coordinates by a principal convention is a matter for who opens it, no fault of a store.
    "principal.none": "info",
}
SCHEMA: dict[str, Severity] = {
    # What the JSON schemas of v0.1 demand word for word.
    "identity.old-url": "warning",
    "identity.name": "warning",
    "identity.no-uuid": "warning",
    "identity.name-only": "error",
    "identity.object-form": "error",
    "identity.extra-field": "warning",
    "multiscales.old-keys": "error",
    "multiscales.list-form": "error",
    "proj.old-keys": "warning",
    "proj.wkt2-form": "error",
    "proj.code-only": "warning",
    "proj.null": "warning",
    "spatial.bbox-half-pixel": "error",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A set of requirements: severities by code, and additional checks."""

    name: str
    about: str
    severities: Mapping[str, Severity]
    checks: tuple[Callable[[StoreMeaning], Iterator[Diagnostic]], ...] = ()


def _pyramids(store: StoreMeaning) -> Iterator[tuple[Node, Pyramid]]:
    for path, meaning in store.groups.items():
        if meaning.pyramid is not None:
            yield store.nodes[path], meaning.pyramid


# --- GDAL -----------------------------------------------------------------------------------------------------------


def gdal_identity(store: StoreMeaning) -> Iterator[Diagnostic]:
    """GDAL recognises spatial, proj and multiscales only by their uuid."""
    for node in store.nodes.values():
        entries, _ = declared(node.attributes, node.path)
        for entry in entries:
            if entry.name in ("spatial", "proj", "multiscales") and entry.by != "uuid":
                message = f"{entry.name} is declared without its uuid, which is all that GDAL looks at"
                hint = f"add {CONVENTIONS[entry.name].uuid}"
                yield Diagnostic("gdal.uuid", "error", node.path, "zarr_conventions", message, hint)


def gdal_overviews(store: StoreMeaning) -> Iterator[Diagnostic]:
    """Levels that GDAL uses as overviews: arrays of one name, rank and type, with the shape in the layout."""
    for group, pyramid in _pyramids(store):
        finest = next((level for level in pyramid.levels if level.order == 0), None)
        if finest is None:
            continue
        layout = _layout(group)
        for level in pyramid.levels:
            where = f"multiscales.layout[{_number(layout, level)}]"
            for name, path in level.arrays.items() if level is not finest else ():
                base, array = store.nodes.get(finest.arrays.get(name, "")), store.nodes.get(path)
                if base is None or array is None:
                    message = f"{name} of level {level.asset!r} has no array of that name at full resolution"
                    yield Diagnostic("gdal.overview", "warning", group.path, where, message)
                elif (len(base.shape), base.dtype) != (len(array.shape), array.dtype):
                    message = f"{path} differs from {base.path} in rank or type; GDAL passes it over"
                    yield Diagnostic("gdal.overview", "error", group.path, where, message)
            yield from _gdal_transform(group, store, level, layout.get(level.asset, {}), where)


def _gdal_transform(
    group: Node, store: StoreMeaning, level: Level, item: Mapping[str, Any], where: str
) -> Iterator[Diagnostic]:
    stated = item.get("transform")
    stated = stated if isinstance(stated, Mapping) else {}
    scale, translation = stated.get("scale"), stated.get("translation")
    arrays = [store.nodes[path] for path in level.arrays.values() if path in store.nodes]
    explicit = group.attributes.get("spatial:registration") == "pixel"
    if isinstance(scale, list) and explicit and any(len(scale) != len(array.shape) for array in arrays):
        message = f"scale has {len(scale)} numbers; with spatial:registration, GDAL requires one for each dimension"
        yield Diagnostic("gdal.scale-rank", "error", group.path, f"{where}.transform.scale", message)
    if isinstance(translation, list) and any(value for value in translation):
        message = "GDAL ignores a translation that is not zero"
        yield Diagnostic("gdal.translation", "warning", group.path, f"{where}.transform.translation", message)


def gdal_codecs(store: StoreMeaning) -> Iterator[Diagnostic]:
    """Codecs that are not part of Zarr v3, which GDAL does not support."""
    for path, document in store.hierarchy.documents.items():
        if document.zarr_format != 3 or document.kind != "array":
            continue
        codecs = document.stored["zarr.json"].get("codecs")
        for codec in codecs if isinstance(codecs, list) else ():
            name = codec.get("name") if isinstance(codec, Mapping) else None
            if isinstance(name, str) and ("/" in name or "." in name):
                message = f"GDAL has no codec {name!r}"
                yield Diagnostic("gdal.codec", "error", path, "codecs", message)


def _layout(group: Node) -> dict[str, Mapping[str, Any]]:
    stated = group.attributes.get("multiscales")
    items = stated.get("layout") if isinstance(stated, Mapping) else None
    return {
        str(item["asset"]): item
        for item in (items if isinstance(items, list) else ())
        if isinstance(item, Mapping) and isinstance(item.get("asset"), str)
    }


def _number(layout: Mapping[str, Any], level: Level) -> int:
    return list(layout).index(level.asset) if level.asset in layout else level.order


# --- EOPF -----------------------------------------------------------------------------------------------------------


def eopf_root(store: StoreMeaning) -> Iterator[Diagnostic]:
    """A footprint and a CRS at the root of the store."""
    root = store.groups.get(ROOT)
    if root is None:
        return
    if root.bbox is None:
        yield Diagnostic("eopf.root-bbox", "error", ROOT, "spatial:bbox", "the root of the store declares no footprint")
    if root.crs is None:
        yield Diagnostic("eopf.root-crs", "error", ROOT, "proj:wkt2", "the root of the store declares no CRS")


def eopf_layout(store: StoreMeaning) -> Iterator[Diagnostic]:
    """Absolute transforms and shapes in every layout item, and the same variables at every level."""
    for group, pyramid in _pyramids(store):
        layout = _layout(group)
        for asset, item in layout.items():
            for key in ("spatial:transform", "spatial:shape"):
                if key not in item:
                    where = f"multiscales.layout[{list(layout).index(asset)}]"
                    message = f"the layout item of {asset!r} has no {key}"
                    yield Diagnostic("eopf.layout", "error", group.path, where, message)
        everything = {name for level in pyramid.levels for name in level.arrays}
        for level in pyramid.levels:
            missing = sorted(everything - set(level.arrays))
            if missing and level.kind != "missing":
                message = f"level {level.asset!r} lacks {', '.join(missing[:8])}"
                yield Diagnostic("eopf.variables", "error", group.path, "multiscales.layout", message)


def eopf_coordinates(store: StoreMeaning) -> Iterator[Diagnostic]:
    """An array of labels for every dimension, in the group of the arrays that have it."""
    for path, node in store.nodes.items():
        if node.kind != "array" or node.dims == (node.name,):
            continue
        group = path.rpartition("/")[0]
        for dim in node.dims:
            if dim is not None and store.nodes.get(f"{group}/{dim}") is None:
                message = f"the group of {node.name!r} has no array {dim!r} of labels"
                yield Diagnostic("eopf.coordinates", "warning", path, "dimension_names", message)


# --- embeddings -----------------------------------------------------------------------------------------------------


def embeddings_arrays(store: StoreMeaning) -> Iterator[Diagnostic]:
    """Embeddings and their scales, of the types and shapes that the conventions give them."""
    described = {path: meaning.embedding for path, meaning in store.groups.items() if meaning.embedding}
    if not described:
        message = "no group declares tessera or geoemb"
        yield Diagnostic("embeddings.none", "error", ROOT, "zarr_conventions", message)
    for path, stated in described.items():
        if stated is None or stated.get("convention") != "tessera" or "utm_zone" not in stated:
            continue
        yield from _tessera_zone(store, path, stated)


def _tessera_zone(store: StoreMeaning, path: str, stated: Mapping[str, Any]) -> Iterator[Diagnostic]:
    def wrong(where: str, message: str) -> Diagnostic:
        return Diagnostic("tessera.array", "error", where, "", message)

    below = path.rstrip("/")
    zone = stated.get("utm_zone")
    if isinstance(zone, int) and not below.endswith(f"utm{zone:02}"):
        message = f"the group of zone {zone} is called utm{zone:02}"
        yield Diagnostic("tessera.name", "warning", path, "tessera:utm_zone", message)
    vectors, scales = store.nodes.get(f"{below}/embeddings"), store.nodes.get(f"{below}/scales")
    if vectors is None or scales is None:
        yield wrong(path, "a zone has the arrays embeddings and scales")
        return
    if vectors.dtype != "int8" or len(vectors.shape) != 3:
        yield wrong(vectors.path, "embeddings are int8 with the dimensions northing, easting and band")
    elif stated.get("n_bands") != vectors.shape[2]:
        yield wrong(vectors.path, f"there are {vectors.shape[2]} bands, but the group declares {stated.get('n_bands')}")
    if scales.dtype != "float32" or scales.shape != vectors.shape[:2]:
        yield wrong(scales.path, "scales are float32, one for each pixel of the embeddings")


PROFILES: Mapping[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile(name="spec", about="the conventions as published, v0.1", severities=SHARED | SCHEMA),
        Profile(
            name="gdal",
            about="what GDAL's Zarr driver recognises",
            severities=SHARED,
            checks=(gdal_identity, gdal_overviews, gdal_codecs),
        ),
        Profile(
            name="eopf",
            about="what EOPF asks of its products",
            severities=SHARED | SCHEMA | {"store.unconsolidated": "error"},
            checks=(eopf_root, eopf_layout, eopf_coordinates),
        ),
        Profile(
            name="embeddings",
            about="tessera and geoemb",
            severities=SHARED,
            checks=(embeddings_arrays,),
        ),
    )
}
