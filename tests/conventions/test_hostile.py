"""Whatever attributes a store has, reading it ends, raises nothing, and gives plain data."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from periplus.conventions.diagnostic import SEVERITIES, Diagnostic
from periplus.conventions.identity import CONVENTIONS, KEY
from periplus.conventions.node import Node
from periplus.conventions.read import Reader, understand, understand_group

WORDS = st.sampled_from(
    ["", ".", "..", "/", "../..", "/g/a", "../a", "time", "y", "x", "lat", "/g", "a\\b", "\0", "EPSG:4326", "affine"]
)
NESTED = """
    axes crs values regular explicit external ref node uri attribute coordinates name abbreviation boundaries parametric
    formula terms geodetic planar layout asset derived_from transform scale translation time unit epoch calendar type
    id ucum path indexed_by coords start end step datasets tile_matrix_set x y lat direction
"""
TOP = """
    spatial:dimensions spatial:transform spatial:bbox spatial:shape spatial:registration spatial:transform_type
    proj:code proj:wkt2 proj:projjson proj:epsg proj:transform cs crs ref uom geolocation multiscales coordinates bounds
    grid_mapping formula_terms cell_measures ancillary_variables coords:coordinates dimensions:axes tessera:year
    dimensions:coordinates geoemb:type geoemb:quantization geoemb:dimensions units Conventions
"""
KEYS = st.sampled_from(NESTED.split())
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), WORDS, st.text(max_size=4), st.just(10**400), st.just(-1)
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=6), st.dictionaries(st.one_of(KEYS, WORDS), inner, max_size=4)),
    max_leaves=12,
)
ATTRIBUTES = st.dictionaries(st.sampled_from(TOP.split()), JSON, max_size=5)
DECLARED = st.one_of(
    st.lists(st.sampled_from(sorted(CONVENTIONS)), max_size=6).map(
        lambda chosen: [{"uuid": CONVENTIONS[name].uuid} for name in chosen]
    ),
    JSON,
)
DIMS = st.sampled_from([(), ("y", "x"), ("x",), ("time", "y", "x"), ("y", "y"), (None, "x"), ("lat", "lon")])


@st.composite
def hierarchies(draw):
    def attributes():
        return {**draw(ATTRIBUTES), KEY: draw(DECLARED)}

    def array(path):
        dims = draw(DIMS)
        shape = tuple(draw(st.sampled_from([0, 1, 2, 5])) for _ in range(draw(st.sampled_from([len(dims), 2]))))
        return Node(path=path, kind="array", attributes=attributes(), dims=dims, shape=shape, dtype="int8")

    groups = {"/": ("g", "time"), "/g": ("a", "0", "x")}
    made = {
        path: Node(path=path, kind="group", attributes=attributes(), members=names) for path, names in groups.items()
    }
    return made | {path: array(path) for path in ("/time", "/g/a", "/g/0", "/g/x")}


@settings(suppress_health_check=list(HealthCheck))
@given(nodes=hierarchies(), strict=st.booleans())
def test_any_attributes_are_read_to_findings_and_plain_data(nodes, strict):
    reader = Reader(lookup=nodes.get, strict=strict)
    for node in nodes.values():
        meaning = reader.array(node) if node.kind == "array" else reader.group(node)
        for finding in meaning.diagnostics:
            assert isinstance(finding, Diagnostic)
            assert finding.severity in SEVERITIES
            assert finding.path in nodes
            assert "." in finding.code
            assert str(finding)
        if node.kind == "array":
            names = [coord.name for coord in meaning.coords]
            assert len(names) == len(set(names))


def test_a_reader_and_single_calls_agree(store):
    store.group("/", "spatial", spatial__dimensions=["y", "x"], spatial__transform=[1, 0, 0, 0, -1, 0])
    store.array("/a", ("y", "x"), (4, 5))
    assert understand(store.nodes["/a"], store.nodes.get) == store.read("/a")
    assert understand_group(store.nodes["/"], store.nodes.get) == store.read("/")


def test_a_finding_is_shown_with_its_place_and_its_hint():
    assert str(Diagnostic("a.b", "info", "/x", "k", "m", "h")) == "/x k: m (h)"


def test_a_million_findings_are_not_kept(store):
    store.array("/a", ("y",), (4,), "cs", cs={"crs": [{"axes": [3] * 20_000}]})
    assert len(store.read("/a").diagnostics) <= 1000


def test_a_reader_looks_each_node_up_once(store):
    store.group("/", "spatial", spatial__dimensions=["y", "x"], spatial__transform=[1, 0, 0, 0, -1, 0])
    for n in range(20):
        store.array(f"/a{n}", ("y", "x"), (4, 5))
    asked = []

    def lookup(path):
        asked.append(path)
        return store.nodes.get(path)

    reader = Reader(lookup=lookup)
    for n in range(20):
        reader.array(store.nodes[f"/a{n}"])
    assert len(asked) == len(set(asked))


def test_documents_as_deep_as_parsers_allow_are_read(store, codes):
    deep = {"uom": {}}
    for _ in range(900):
        deep = {"uom": [deep], "ref": deep, "node": deep, "axes": deep, "layout": [deep], "type": deep}
    keys = "spatial:transform_type spatial:registration spatial:dimensions proj:projjson cs ref uom geolocation"
    for n in range(2):
        store.array(f"/a{n}", ("y", "x"), (4, 5), "spatial proj cs ref uom geolocation multiscales dimensions")
        store.nodes[f"/a{n}"].attributes.update(dict.fromkeys(keys.split(), deep))
        store.nodes[f"/a{n}"].attributes["dimensions:axes"] = {"y": {"coords": deep}}
    reader = Reader(lookup=store.nodes.get)
    for n in range(2):
        assert {"spatial.dimensions-malformed", "uom.malformed"} <= set(codes(reader.array(store.nodes[f"/a{n}"])))
    store.group("/g", "multiscales proj")
    store.nodes["/g"].attributes.update({"multiscales": deep, "proj:projjson": deep})
    assert store.read("/g").crs is None
