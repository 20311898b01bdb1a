"""Arrays that cannot be opened or placed never close the rest of a store; `validate` reports them."""

import json
import shutil
import warnings

import numpy as np
import pytest
import xarray as xr

import periplus
from periplus.engine.xgroup import XGroupConflictWarning, XGroupConventionWarning, XGroupReferenceWarning
from periplus.testing.hierarchies import StoredArray, declare_huge, declared, spatial, write_hierarchy

SQUARE = {"dims": ("y", "x"), "shape": (3, 4)}
TIMES = {"units": "days since 2024-01-01"}


def opened(path, **options):
    """The tree and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return xr.open_datatree(path, engine="xgroup", **options), caught


def edit(path, change):
    file = path / "zarr.json"
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))


def product(path, *, zarr_format=2):
    """A small product as EOPF has them: arrays named like one of their dimensions, times, odd attributes."""
    noise = {"dims": ("t", "r"), "shape": (2, 3)}
    nodes = {
        "/": {"stac_discovery": {"type": "Feature"}, "other_metadata": {}},
        "conditions/antenna_pattern/r": StoredArray(**noise, attributes=TIMES),
        "conditions/antenna_pattern/t": StoredArray(dims=("t",), shape=(2,), attributes=TIMES),
        "conditions/antenna_pattern/roll": StoredArray(**noise, attributes={"coordinates": "t r"}),
        "conditions/gcp/latitude": StoredArray(dims=("line", "pixel"), shape=(2, 3)),
        "conditions/gcp/line": StoredArray(dims=("line", "pixel"), shape=(2, 3)),
        "conditions/gcp/pixel": StoredArray(dims=("line", "pixel"), shape=(2, 3)),
        "conditions/gcp/height": StoredArray(
            dims=("line", "pixel"), shape=(2, 3), attributes={"coordinates": "latitude line pixel"}
        ),
        "quality/calibration/sigma": StoredArray(dims=("n", "k"), shape=(2, 2)),
        "quality/calibration/k": StoredArray(dims=("n",), shape=(2,)),
        "measurements/azimuth_time": StoredArray(dims=("azimuth_time",), shape=(3,), attributes=TIMES),
        "measurements/ground_range": StoredArray(dims=("ground_range",), values=np.array([0.0, 10.0, 20.0, 30.0])),
        "measurements/grd": StoredArray(
            dims=("azimuth_time", "ground_range"),
            shape=(3, 4),
            dtype="uint16",
            attributes={"_eopf_attrs": {"dimensions": ["azimuth_time", "ground_range"], "fill_value": 0}},
        ),
    }
    return write_hierarchy(path, nodes, zarr_format=zarr_format, consolidated=True)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_product_opens_as_stock_xarray_opens_it(zarr_format, tmp_path):
    path = product(tmp_path / "s1.zarr", zarr_format=zarr_format)
    tree, caught = opened(path)
    stock = xr.open_datatree(path, engine="zarr")
    for node in stock.subtree:
        ours = tree[node.path]
        assert set(ours.coords) == set(node.coords)
        assert dict(ours.xindexes).keys() == dict(node.xindexes).keys()
        xr.testing.assert_identical(ours.to_dataset(inherit=False).load(), node.to_dataset(inherit=False).load())
    assert tree["conditions/antenna_pattern"].coords["r"].dims == ("t", "r")
    assert all("antenna_pattern/r," not in str(one.message) for one in caught)
    assert periplus.validate(path, profile="gdal").worst != "error"


def test_a_product_of_both_versions_opens_whole(tmp_path):
    path = product(tmp_path / "mixed.zarr")
    (path / ".zmetadata").unlink()
    newer = product(tmp_path / "newer.zarr", zarr_format=3)
    shutil.rmtree(path / "measurements")
    shutil.move(newer / "measurements", path / "measurements")
    shutil.rmtree(path / "quality" / "calibration" / "k")
    shutil.move(newer / "quality" / "calibration" / "k", path / "quality" / "calibration" / "k")
    tree, _ = opened(path)
    assert tree["measurements"]["grd"].values.tolist() == np.arange(12).reshape(3, 4).tolist()
    assert {"k", "sigma"} <= set(tree["quality/calibration"].variables)
    assert xr.open_dataset(path, engine="xgroup", group="measurements", drop_variables="grd").sizes["azimuth_time"] == 3
    report = periplus.validate(path)
    mixed = [one.path for one in report.findings if one.code == "store.mixed-versions"]
    assert mixed == ["/measurements", "/quality/calibration/k"]
    only, _ = opened(path, zarr_format=2)
    assert "measurements" not in only.children
    periplus.validate(path, fix=True)
    held = json.loads((path / ".zmetadata").read_text())["metadata"]
    assert not [key for key in held if key.endswith("zarr.json") or "measurements" in key]


@pytest.mark.parametrize("both", [2, 3])
def test_a_node_with_documents_of_both_versions_is_one_node(both, tmp_path):
    path, other = (product(tmp_path / f"{n}.zarr", zarr_format=n) for n in (both, 5 - both))
    for file in other.rglob("*"):
        if file.name in ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"):
            shutil.copy(file, path / file.relative_to(other))
    newer = product(tmp_path / "again.zarr", zarr_format=3)
    tree, expected = opened(path)[0], opened(newer)[0]
    assert tree.isomorphic(expected)
    assert periplus.validate(path).arrays == periplus.validate(newer).arrays


@pytest.mark.parametrize(
    ("arrays", "dims"),
    [
        ({"r": (("r", "q"), (2, 3)), "q": (("r", "q"), (2, 3))}, {"r": ("r", "q"), "q": ("r", "q")}),
        ({"r": (("t",), (2,)), "d": (("t", "r"), (2, 3))}, {"r": ("t",), "d": ("t", "r")}),
        ({"r": ((), ()), "d": (("t", "r"), (2, 3))}, {"r": (), "d": ("t", "d_r")}),
        ({"r": (("r", "r"), (2, 2)), "d": (("r",), (2,))}, {"r": ("r", "r_dim_1"), "d": ("r",)}),
        ({"d": (("r", "r"), (2, 3)), "r": (("r",), (2,))}, {"d": ("r", "d_dim_1"), "r": ("r",)}),
    ],
)
def test_names_of_arrays_and_dimensions_never_keep_a_group_from_opening(arrays, dims, tmp_path):
    nodes = {f"g/{name}": StoredArray(dims=over, shape=shape) for name, (over, shape) in arrays.items()}
    path = write_hierarchy(tmp_path / "s.zarr", {**nodes, "h/v": StoredArray(**SQUARE, attributes=spatial())})
    tree, caught = opened(path)
    assert {name: one.dims for name, one in tree["g"].variables.items()} == dims
    assert {name: one.values.tolist() for name, one in tree["g"].variables.items()} == {
        name: nodes[f"g/{name}"].numbers.tolist() for name in dims
    }
    assert set(tree["h"].coords) == {"y", "x"}
    renamed = any("_" in str(dim) for over in dims.values() for dim in over)
    assert renamed == any(one.category in (XGroupConflictWarning, XGroupConventionWarning) for one in caught)


def test_labels_of_a_grid_do_not_replace_arrays_of_their_names(tmp_path):
    nodes = {"v": StoredArray(**SQUARE, attributes=spatial()), "y": StoredArray(**SQUARE), "x": StoredArray(**SQUARE)}
    path = write_hierarchy(tmp_path / "s.zarr", nodes)
    tree, caught = opened(path)
    assert tree.coords["y"].dims == ("y", "x")
    assert [one.category for one in caught if "y has no labels by spatial" in str(one.message)] == [
        XGroupConventionWarning
    ]


BROKEN = {
    "codec": (lambda d: d["codecs"].append({"name": "none.such"}), "warning"),
    "codec in shards": (
        lambda d: d.update(
            codecs=[
                {
                    "name": "sharding_indexed",
                    "configuration": {
                        "chunk_shape": [3, 4],
                        "codecs": [{"name": "none.such"}],
                        "index_codecs": [{"name": "bytes"}],
                    },
                }
            ]
        ),
        "warning",
    ),
    "dtype": (lambda d: d.update(data_type="none"), "error"),
    "dtype object": (lambda d: d.update(data_type={"name": "none", "configuration": {}}), "error"),
    "negative": (lambda d: d.update(shape=[-3, 4]), "error"),
    "huge": (lambda d: d.update(shape=[1 << 62, 1 << 62]), "error"),
    "chunks": (lambda d: d["chunk_grid"]["configuration"].update(chunk_shape=[0, 4]), "error"),
    "fill": (lambda d: d.pop("fill_value"), "error"),
    "extension": (lambda d: d.update(more={"must_understand": True}), "error"),
    "transformer": (lambda d: d.update(storage_transformers=[{"name": "none"}]), "error"),
    "version": (lambda d: d.update(zarr_format=4), "error"),
    "kind": (lambda d: d.update(node_type="table"), "error"),
    "attributes": (lambda d: d.update(attributes=[1]), "error"),
}


@pytest.mark.parametrize(
    ("kind", "consolidated"),
    [*((kind, False) for kind in [*BROKEN, "json"]), ("codec", True), ("negative", True), ("json", True)],
)
def test_one_unreadable_array_does_not_close_the_rest(kind, consolidated, tmp_path):
    one = StoredArray(**SQUARE, attributes=spatial())
    path = write_hierarchy(
        tmp_path / "s.zarr", {"g/bad": one, "g/good": one, "h/v": StoredArray(dims=None, shape=(2,))}
    )
    change, severity = BROKEN.get(kind, (None, "error"))
    if change is None:
        (path / "g" / "bad" / "zarr.json").write_bytes(b"{not JSON")
    else:
        edit(path / "g" / "bad", change)
    if consolidated:
        nodes = [file for file in path.rglob("zarr.json") if file.parent != path and file.read_bytes()[:1] == b"{"]
        inside = {str(n.parent.relative_to(path)): n.read_text() for n in nodes}
        inside = {name: "not an object" if "{not" in text else json.loads(text) for name, text in inside.items()}
        edit(path, lambda d: d.update(consolidated_metadata={"kind": "inline", "metadata": inside}))
    tree, caught = opened(path)
    assert tree["g"]["good"].values.tolist() == one.numbers.tolist()
    assert set(tree["g"].coords) == {"y", "x"}
    assert tree["h"]["v"].values.tolist() == [0, 1]
    assert [w.category for w in caught if "/g/bad" in str(w.message)] == [XGroupReferenceWarning]
    assert "bad" not in tree["g"].variables
    found = [f for f in periplus.validate(path).findings if f.path == "/g/bad" and f.severity != "info"]
    assert severity in {f.severity for f in found if f.code in ("store.json", "node.unreadable")}


def test_stored_labels_too_many_for_an_index_are_not_read(tmp_path):
    path = tmp_path / "s.zarr"
    values = {"external": {"ref": {"node": "/c/x"}}}
    axis = {"abbreviation": "X", "coordinates": [{"direction": "east", "unit": "m", "values": values}]}
    cs = {**declared("cs", "ref"), "cs": {"crs": [{"type": "planar", "axes": {"x": axis}}]}}
    declare_huge(path, "c/x", (10**12,), ("x",), {})
    declare_huge(path, "g/v", (10**12,), ("x",), cs)
    tree, caught = opened(path)
    assert tree["c"]["x"].dims == ("x_x",)
    assert tree["g"]["v"][-1].item() == 0
    assert not tree["g"].coords
    texts = [(w.category, str(w.message)) for w in caught if "too many for an index" in str(w.message)]
    assert {category for category, _ in texts} == {XGroupReferenceWarning, XGroupConflictWarning}
    assert "node.labels" in {f.code for f in periplus.validate(path).findings if f.path == "/c/x"}


def test_times_that_cannot_be_decoded_stay_numbers(tmp_path):
    wrong = {"units": "days since 2000-13-45"}
    nodes = {
        "g/t": StoredArray(dims=("t",), values=np.array([0.0, 1.0]), attributes=wrong),
        "g/v": StoredArray(dims=("t",), shape=(2,)),
        "h/v": StoredArray(dims=("y",), shape=(2,), attributes={"coordinates": "/g/t"}),
    }
    path = write_hierarchy(tmp_path / "s.zarr", {"/": {"Conventions": "CF-1.11"}, **nodes})
    tree, caught = opened(path)
    assert tree["g"].coords["t"].values.tolist() == [0.0, 1.0]
    assert tree["g"].coords["t"].attrs == wrong
    texts = [str(w.message) for w in caught if w.category is XGroupReferenceWarning]
    assert sum("cannot be decoded, it stays numbers" in text for text in texts) == 2
    assert tree["h"]["v"].values.tolist() == [0, 1]
