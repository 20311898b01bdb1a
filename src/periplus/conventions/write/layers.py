"""Arrays to georeference, from labels of x and y, a Dataset, or what a store already declares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from periplus.conventions.context import texts, whole
from periplus.conventions.meaning import Grid, Meaning
from periplus.conventions.node import ROOT, Node, ancestors, parent
from periplus.conventions.proj.crs import crs_from_cf, same_crs
from periplus.conventions.read import Reader
from periplus.conventions.spatial.grid import usual_dims
from periplus.conventions.spatial.transform import SLACK, DeclaredGrid, samples_of, samples_of_both, samples_of_part
from periplus.conventions.write.attributes import Layer, as_grid, size, spatial_dims
from periplus.errors import FormatError
from periplus.model import Georeference, Transform

_MAPPINGS = ("spatial_ref", "crs")
_SHAPE, _DIMS = "spatial:shape", "spatial:dimensions"
REGISTRATIONS = {"pixel": "area", "node": "point", "area": "area", "point": "point"}
"""Words of the spatial convention and of GDAL, and what periplus.model.Georeference calls them."""


def registration_of(word: str) -> str:
    """`area` or `point` for a word of either vocabulary."""
    if word not in REGISTRATIONS:
        raise ValueError(f"registration must be one of {', '.join(REGISTRATIONS)}, not {word!r}")
    return REGISTRATIONS[word]


def nodes_of(datasets: Mapping[str, Any]) -> dict[str, Node]:
    """Datasets by the paths of their groups (without a leading slash), as nodes that a Reader understands.

    Without `spatial:shape`: a selection of a Dataset keeps attributes, and these are to be read nevertheless.
    """
    found: dict[str, Node] = {}
    for group, dataset in datasets.items():
        path = f"/{group}"
        for name, variable in dataset.variables.items():
            at = f"{path.rstrip('/')}/{name}"
            dims = tuple(str(dim) for dim in variable.dims)
            found[at] = Node(path=at, kind="array", attributes=_plain(variable.attrs), dims=dims, shape=variable.shape)
        inside = {str(name) for name in dataset.variables}
        inside |= {other[len(group) :].strip("/").partition("/")[0] for other in datasets if _below(other, group)}
        found[path] = Node(path=path, kind="group", attributes=_plain(dataset.attrs), members=tuple(sorted(inside)))
    return found


def _below(path: str, group: str) -> bool:
    return path != group and path.startswith(f"{group}/" if group else "")


def unsized(nodes: Mapping[str, Node]) -> Reader:
    """A lenient Reader of nodes that takes no notice of the shapes they declare."""
    made = {
        path: replace(node, attributes={key: value for key, value in node.attributes.items() if key != _SHAPE})
        for path, node in nodes.items()
    }
    return Reader(lookup=made.get, strict=False)


def layers_of(
    dataset: Any,
    *,
    crs: str | None = None,
    group: str = "",
    level: int = 0,
    spatial_dims: tuple[str, str] | None = None,
    registration: str | None = None,
    transform: Transform | None = None,
    by_attributes: bool = True,
    rotated: Mapping[tuple[str, str], Transform] | None = None,
    nodes: Mapping[str, Node] | None = None,
) -> list[Layer]:
    """A layer for each variable of a Dataset over x and y, placed by their labels.

    Anything with `data_vars`, `variables`, `coords` and `dims` will do. What is not given is taken from the attributes
    and the grid mapping, as far as they do not contradict the labels; FormatError where there is no telling.
    `transform` is of samples for the registration `node`, else of pixel corners. `by_attributes`: whether attributes
    may place what labels do not. `rotated`: transforms of samples by (y, x), where an index has them. `nodes`: those of
    all groups, where there are several.
    """
    group = group.strip("/")
    nodes = nodes_of({group: dataset}) if nodes is None else nodes
    reader = unsized(nodes)
    word = None if registration is None else registration_of(registration)
    made = []
    for name, variable in dataset.data_vars.items():
        node = nodes[f"/{group}/{name}" if group else f"/{name}"]
        layer = layer_over(node, reader, spatial_dims)
        if layer is None or (dims := layer.spatial_dims) is None:
            continue
        layer = replace(layer, level=level)
        mapping = _mapping(dataset, variable)
        labels = {dim: dataset.coords[dim] for dim in dims if dim in dataset.coords}
        if transform is not None:
            grid = given_grid(layer, transform, registration)
        else:
            known = (declared(nodes, reader, layer) or _by_mapping(mapping, layer)) if by_attributes else None
            both = _both(dataset, str(name), dims)
            grid = placed(layer, known, labels=labels, both=both, rotated=(rotated or {}).get(dims))
        found = crs or _crs(mapping, layer)
        made.append(with_grid(layer, grid, word or declared_registration(nodes, layer), crs=found))
    if not made and (spatial_dims is not None or usual_dims(dataset.dims) is None):
        names = sorted(map(str, dataset.dims))
        if spatial_dims is not None:
            raise no_such_dims(spatial_dims, names)
        raise FormatError(f"no variable over {names} has dimensions y and x; name these by spatial_dims")
    return made


def no_such_dims(dims: Sequence[str], there: Iterable[str]) -> ValueError:
    """For `spatial_dims` that no array has both of."""
    return ValueError(f"no array has both dimensions {list(dims)} of spatial_dims; there are {sorted(set(there))}")


def declared(nodes: Mapping[str, Node], reader: Reader, layer: Layer) -> DeclaredGrid | None:
    """The grid that attributes of an array and of the groups around it declare."""
    path = f"/{layer.name}"
    node = reader.lookup(path)
    meaning = None if node is None else reader.array(node)
    if meaning is None or meaning.grid is None:
        return None
    around = [nodes[at].attributes for at in (path, parent(path) or ROOT) if at in nodes]
    stated = next((whole(one[_SHAPE]) for one in (*_item(reader, meaning), *around) if _SHAPE in one), None)
    grid = meaning.grid
    if stated is None or len(stated) < 2:
        return DeclaredGrid(grid=grid)
    order = next((texts(one[_DIMS]) for one in around if _DIMS in one), None) or grid.dims
    height, width = stated[-2:] if order[-2:] != grid.dims[::-1] else stated[:-3:-1]
    return DeclaredGrid(grid=grid, shape=(height, width))


def _item(reader: Reader, meaning: Meaning) -> list[Mapping[str, Any]]:
    """The layout item of the level that an array belongs to."""
    group = None if meaning.pyramid is None else reader.lookup(meaning.pyramid)
    value = None if group is None else group.attributes.get("multiscales")
    layout = value.get("layout") if isinstance(value, Mapping) else None
    items = [item for item in layout if isinstance(item, Mapping)] if isinstance(layout, list | tuple) else []
    return [item for item in items if meaning.level is not None and item.get("asset") == meaning.level.asset]


def declared_registration(nodes: Mapping[str, Node], layer: Layer) -> str:
    """`area` or `point`, as the array or the nearest group around it declares."""
    if layer.georeference is not None and layer.georeference.transform is not None:
        return layer.georeference.registration
    around = (nodes[at].attributes for at in (f"/{layer.name}", *ancestors(f"/{layer.name}")) if at in nodes)
    found = next((one["spatial:registration"] for one in around if "spatial:registration" in one), "pixel")
    return "point" if found == "node" else "area"


def placed(
    layer: Layer,
    known: DeclaredGrid | None,
    *,
    labels: Mapping[str, Any],
    both: tuple[Any, Any] | None = None,
    rotated: Transform | None = None,
) -> Grid | None:
    """The grid of a layer: as its labels place it, else as attributes declare it.

    `labels` are those along its dimensions, `both` the x and y of every sample, `rotated` the transform by which these
    are computed. FormatError where no transform gives the labels, or attributes declare one for another shape.
    """
    area, dims = size(layer), layer.spatial_dims
    if area is None or dims is None:
        return None
    y, x = dims
    if rotated is not None:
        samples = samples_of_part(rotated, known, area)
    elif labels.keys() >= {x, y} and (both is None or known is None or known.grid.upright):
        samples = samples_of(labels[x], labels[y], known)
    elif both is not None:
        samples = samples_of_both(*both, known)
    elif known is None:
        return None
    else:
        if not known.fits(area):
            message = f"{layer.name} has the shape {list(area)}, but its attributes declare a transform for the shape"
            raise FormatError(f"{message} {list(known.shape or ())}; give the transform")
        check_labels(layer, known.grid, labels)
        return known.grid
    if known is not None and known.grid.centre == samples:
        return known.grid  # half a cell back and forth would round it
    return Grid(dims=dims, shape=area, transform=samples, registration="node")


def check_labels(layer: Layer, grid: Grid, labels: Mapping[str, Any]) -> None:
    """FormatError where labels along y or x are not where the grid places the samples."""
    area, dims = size(layer), layer.spatial_dims
    if area is None or dims is None:
        return
    a, b, c, d, e, f = grid.centre
    for name, count, start, step in ((dims[0], area[0], f, e), (dims[1], area[1], c, a)):
        if name not in labels:
            continue
        even = start + step * np.arange(count)
        if b or d or not np.allclose(labels[name], even, rtol=0, atol=SLACK * abs(step)):
            message = f"the labels of {name} are not where the transform places the samples of {layer.name}"
            raise FormatError(f"{message}; drop the labels or correct one of the two")


def given_grid(layer: Layer, transform: Transform, registration: str | None) -> Grid | None:
    """The grid of a layer by a transform that a user gives: of samples for `node`, else of pixel corners."""
    area = size(layer)
    if area is None:
        return None
    return Grid(
        shape=area,
        dims=spatial_dims(layer),
        transform=transform,
        registration="node" if registration == "node" else "pixel",
    )


def with_grid(layer: Layer, grid: Grid | None, registration: str, *, crs: str | None = None) -> Layer:
    """A layer on a grid; `registration` as in periplus.model.Georeference. Without `crs` it keeps the one it has."""
    old = georeference_of(layer)
    transform = None if grid is None else grid.corner
    place = replace(old, crs=crs or old.crs, transform=transform, registration=registration)
    return replace(
        layer, georeference=place, nodes=grid.centre if grid is not None and registration == "point" else None
    )


def georeference_of(layer: Layer) -> Georeference:
    """The georeference of a layer; an empty one where it has none."""
    return layer.georeference or Georeference()


def layer_over(node: Node, reader: Reader, dims: tuple[str, str] | None) -> Layer | None:
    """An array over y and x, which are `dims` where these are given, as its store places it; None for others."""
    if node.kind != "array" or len(node.shape) < 2 or None in node.dims or len(node.dims) != len(node.shape):
        return None
    layer = layer_of(node, reader.array(reader.lookup(node.path) or node))
    over = dims or layer.spatial_dims or usual_dims(node.dims)
    return replace(layer, spatial_dims=over) if over is not None and set(over) <= set(node.dims) else None


def layer_of(node: Node, meaning: Meaning) -> Layer:
    """An array as its store places it now, to be written again in the current conventions."""
    grid, crs = meaning.grid, meaning.crs
    place = None
    if grid is not None or crs is not None:
        place = Georeference(
            # A code that agrees with the text is better: PROJ knows the members of its datum ensemble.
            crs=None if crs is None else crs.code or crs.text,
            transform=None if grid is None else grid.corner,
            registration="point" if grid is not None and grid.registration == "node" else "area",
        )
    return Layer(
        name=node.path.strip("/"),
        dims=tuple(name or f"dim_{n}" for n, name in enumerate(node.dims)) or _nameless(node.shape),
        shape=node.shape,
        level=0 if meaning.level is None else meaning.level.order,
        georeference=place,
        spatial_dims=None if grid is None else grid.dims,
        nodes=grid.transform if grid is not None and grid.registration == "node" else None,
    )


def _nameless(shape: Sequence[int]) -> tuple[str, ...]:
    return tuple(f"dim_{n}" for n in range(len(shape)))


def _both(dataset: Any, variable: str, dims: tuple[str, str]) -> tuple[Any, Any] | None:
    """The x and y of every sample over (y, x), by the names that the engines give them; None where there are none."""
    for prefix in ("", f"{variable}_"):
        pair = [dataset.coords[name] for name in (f"{prefix}xc", f"{prefix}yc") if name in dataset.coords]
        if len(pair) == 2 and all(set(one.dims) == set(dims) for one in pair):
            return pair[0].transpose(*dims), pair[1].transpose(*dims)
    return None


def _mapping(dataset: Any, variable: Any) -> dict[str, Any]:
    """Attributes of the grid mapping of a variable: the one it names, else one of the usual names."""
    named = variable.encoding.get("grid_mapping", variable.attrs.get("grid_mapping"))
    for name in (str(named).partition(":")[0].strip(), *_MAPPINGS):
        if name in dataset.coords or name in dataset.data_vars:
            return dict(dataset[name].attrs)
    return {}


def _crs(mapping: Mapping[str, Any], layer: Layer) -> str | None:
    """The CRS of the grid mapping; by the text of the attributes where that is the same, as it may be a code."""
    text, declared_text = crs_from_cf(mapping), georeference_of(layer).crs
    if text is None or (declared_text is not None and same_crs(text, declared_text)):
        return declared_text
    return text


def _by_mapping(mapping: Mapping[str, Any], layer: Layer) -> DeclaredGrid | None:
    """The grid by the GeoTransform of a grid mapping, of pixel corners in GDAL's order."""
    try:
        c, a, b, f, d, e = (float(word) for word in str(mapping.get("GeoTransform")).split())
    except ValueError:
        return None
    area = size(layer)
    grid = None if area is None else as_grid(Georeference(transform=(a, b, c, d, e, f)), area)
    return None if grid is None or not a * e - b * d else DeclaredGrid(grid=grid)


def _plain(attributes: Mapping[Any, Any]) -> dict[str, Any]:
    """Attributes with lists for arrays of NumPy, which formats other than Zarr give."""
    return {
        str(key): value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        for key, value in attributes.items()
    }
