"""What the writer writes is what the reader understands, for any grid, CRS, registration and pyramid."""

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from periplus.conventions.node import Node
from periplus.conventions.proj.crs import describe_crs
from periplus.conventions.publish import write_conventions
from periplus.conventions.read import Reader
from periplus.conventions.write.attributes import Layer, as_grid
from periplus.model import Georeference

CUSTOM = "+proj=laea +lat_0=51 +lon_0=9 +datum=WGS84"
CRS = st.sampled_from([None, "EPSG:32633", "EPSG:4326", "EPSG:3857", "OGC:CRS84", CUSTOM, describe_crs(CUSTOM).wkt2])
SIZES = st.floats(-1e4, 1e4).filter(lambda v: abs(v) > 1e-6)
ORIGINS = st.floats(-1e7, 1e7)
UPRIGHT = st.builds(lambda a, c, e, f: (a, 0.0, c, 0.0, e, f), SIZES, ORIGINS, SIZES, ORIGINS)
TURNED = st.tuples(SIZES, SIZES, ORIGINS, SIZES, SIZES, ORIGINS).filter(lambda t: abs(t[0] * t[4] - t[1] * t[3]) > 1e-9)
ANTIMERIDIAN = st.builds(lambda cell: (cell, 0.0, 180 - 2 * cell, 0.0, -cell, 60.0), st.floats(1e-3, 1))
SHAPES = st.tuples(st.integers(2, 300), st.integers(2, 300))
PLACES = st.builds(
    Georeference,
    crs=CRS,
    transform=st.one_of(UPRIGHT, TURNED, ANTIMERIDIAN),
    registration=st.sampled_from(["area", "point"]),
)
RELAXED = settings(suppress_health_check=[HealthCheck.too_slow])


def nodes(layers, written):
    """The store that a writer makes of arrays and what is to be merged into it."""
    made = {}
    for layer in layers:
        path = "/" + layer.name
        made[path] = Node(
            path=path,
            kind="array",
            dims=layer.dims,
            shape=layer.shape,
            attributes=written.attributes.get(layer.name, {}),
        )
    for path, attributes in written.grid_mappings.items():
        made["/" + path] = Node(path="/" + path, kind="array", attributes=attributes, dtype="int64")
    children = {}
    for path in list(made):
        while path != "/":
            up = path.rpartition("/")[0] or "/"
            children.setdefault(up, set()).add(path.rpartition("/")[2])
            path = up
    for path, members in children.items():
        attributes = written.attributes.get(path.strip("/"), {})
        made[path] = Node(path=path, kind="group", attributes=attributes, members=tuple(sorted(members)))
    return made


def halves(shape, place, levels):
    """Levels of half the size, rounded up, as a writer of overviews makes them."""
    made = []
    for n in range(levels):
        a, b, c, d, e, f = place.transform
        transform = (a * 2**n, b * 2**n, c, d * 2**n, e * 2**n, f)
        made.append(
            Layer(
                name=f"{n}/data",
                dims=("bands", "y", "x"),
                shape=(3, *(-(-size // 2**n) for size in shape)),
                level=n,
                georeference=Georeference(crs=place.crs, transform=transform, registration=place.registration),
            )
        )
    return made


@RELAXED
@given(place=PLACES, shape=SHAPES)
@example(place=Georeference(crs="EPSG:4326", transform=(0.1, 0, 179.9, 0, -0.1, 5)), shape=(7, 9))
def test_a_single_array_comes_back(place, shape):
    layer = Layer(name="sst", dims=("y", "x"), shape=shape, georeference=place)
    store = nodes([layer], write_conventions([layer]))
    meaning = Reader(lookup=store.get).array(store["/sst"])
    assert meaning.grid == as_grid(place, shape)
    assert [d for d in meaning.diagnostics if d.severity != "info"] == []
    if place.crs is None:
        assert meaning.crs is None
    else:
        meant = describe_crs(place.crs)
        assert (meaning.crs.form, meaning.crs.text, meaning.crs.code) == ("wkt2", meant.wkt2, meant.code)


@RELAXED
@given(place=PLACES, shape=SHAPES, levels=st.integers(1, 5))
@example(place=Georeference(crs="EPSG:32633", transform=(10, 0, 5e5, 0, -10, 5e6)), shape=(101, 3), levels=4)
def test_a_pyramid_comes_back(place, shape, levels):
    layers = halves(shape, place, levels)
    written = write_conventions(layers, resampling="average")
    store = nodes(layers, written)
    reader = Reader(lookup=store.get)
    group = reader.group(store["/"])
    assert [level.asset for level in group.pyramid.levels] == [str(n) for n in range(levels)]
    assert [level.factors for level in group.pyramid.levels] == [(2**n, 2**n) for n in range(levels)]
    assert [level.shape for level in group.pyramid.levels] == [layer.shape[-2:] for layer in layers]
    assert (group.crs and group.crs.text) == (place.crs and describe_crs(place.crs).wkt2)
    findings = list(group.diagnostics)
    for layer, level in zip(layers, group.pyramid.levels, strict=True):
        meaning = reader.array(store["/" + layer.name])
        assert meaning.grid == level.grid == as_grid(layer.georeference, layer.shape[-2:])
        assert meaning.level == level
        findings += meaning.diagnostics
    assert [d for d in findings if d.severity != "info"] == []


@RELAXED
@given(place=PLACES, shape=SHAPES, levels=st.integers(2, 4))
def test_levels_are_found_again_without_their_absolute_transforms(place, shape, levels):
    """The shapes and relative scales alone place all levels, if sizes halve evenly."""
    shape = tuple(size * 2**levels for size in shape)
    place = Georeference(crs=place.crs, transform=place.transform)
    layers = halves(shape, place, levels)
    written = write_conventions(layers[:1])
    full = write_conventions(layers).attributes[""]
    layout = [
        {key: value for key, value in item.items() if n == 0 or not key.startswith("spatial:")}
        for n, item in enumerate(full["multiscales"]["layout"])
    ]
    attributes = {**written.attributes, "": {**full, "multiscales": {"layout": layout}}}
    store = nodes(layers, type(written)(attributes=attributes))
    reader = Reader(lookup=store.get)
    for layer in layers:
        assert reader.array(store["/" + layer.name]).grid == as_grid(layer.georeference, layer.shape[-2:])


@RELAXED
@given(place=PLACES.filter(lambda p: p.crs is not None), shape=SHAPES)
def test_the_twin_of_cf_comes_back_as_the_same_crs(place, shape):
    layer = Layer(name="sst", dims=("y", "x"), shape=shape, georeference=place)
    written = write_conventions([layer])
    only = {key: value for key, value in written.attributes["sst"].items() if key == "grid_mapping"}
    store = nodes([layer], type(written)(attributes={"sst": only}, grid_mappings=written.grid_mappings))
    meaning = Reader(lookup=store.get).array(store["/sst"])
    assert meaning.crs.form == "cf"
    assert meaning.crs.text == describe_crs(place.crs).wkt2
