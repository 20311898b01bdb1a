"""Datasets and stores to layers: labels give the transform, and what a store declares can be written again."""

import numpy as np
import pyproj
import pytest
import rioxarray  # noqa: F401 - gives Datasets their `rio`
import xarray as xr

from periplus.conventions.publish import write_conventions
from periplus.conventions.spatial.transform import samples_of
from periplus.conventions.write.layers import layer_of, layers_of
from periplus.errors import FormatError

# rioxarray multiplies affines with `*`, which affine 3.1 frowns upon.
UTM = (10.0, 0.0, 500000.0, 0.0, -10.0, 5000000.0)


@pytest.fixture
def dataset():
    made = xr.Dataset(
        {"a": (("time", "y", "x"), np.zeros((2, 4, 5))), "b": (("x", "y"), np.zeros((5, 4))), "c": (("time",), [1, 2])},
        {"x": 500005.0 + 10 * np.arange(5), "y": 4999995.0 - 10 * np.arange(4)},
    )
    return made.rio.write_crs("EPSG:32633")


def test_a_dataset_is_placed_where_rioxarray_places_it(dataset):
    layers = layers_of(dataset, group="0")
    assert [(layer.name, layer.dims) for layer in layers] == [("0/a", ("time", "y", "x")), ("0/b", ("x", "y"))]
    assert layers[0].georeference.transform == tuple(dataset.rio.transform())[:6] == UTM
    assert pyproj.CRS(layers[0].georeference.crs) == dataset.rio.crs
    written = write_conventions(layers).attributes["0/b"]
    assert written["spatial:shape"] == [4, 5]
    assert written["spatial:dimensions"] == ["y", "x"]
    assert tuple(written["spatial:bbox"]) == dataset.rio.bounds()


def test_a_crs_that_is_given_wins_and_one_that_is_nowhere_stays_unknown(dataset):
    assert layers_of(dataset, crs="EPSG:4326")[0].georeference.crs == "EPSG:4326"
    assert layers_of(dataset.drop_vars("spatial_ref"))[0].georeference.crs is None


def test_dimensions_of_other_names_must_be_given(dataset):
    odd = dataset.rename(x="columns", y="rows")
    with pytest.raises(FormatError, match="spatial_dims"):
        layers_of(odd)
    assert layers_of(odd, spatial_dims=("rows", "columns"))[0].georeference.transform == UTM


@pytest.mark.parametrize("labels", [[1.0], [1.0, 2.0, 4.0], [1.0, 1.0, 1.0], [1.0, np.nan, 3.0], [[1.0, 2.0]]])
def test_labels_that_no_transform_gives_are_refused(labels):
    with pytest.raises(FormatError):
        samples_of(labels, [1.0, 2.0])


def test_labels_rounded_to_single_precision_are_even():
    labels = (0.1 * np.arange(1000, dtype="f4") - 50).astype("f4")
    a, _, c, *_ = samples_of(labels, [1.0, 2.0])
    assert (a, c) == pytest.approx((0.1, -50.0), rel=1e-5)


def test_attributes_of_older_drafts_are_written_in_the_current_form(store, codes):
    store.group("/", "multiscales proj", multiscales={"layout": [{"group": "0"}, {"group": "1", "from_group": "0"}]})
    place = {"proj__code": "EPSG:32633", "proj__spatial_dimensions": ["y", "x"]}
    store.array("/0/a", ("y", "x"), (8, 10), "proj", **place, proj__transform=list(UTM))
    store.array("/1/a", ("y", "x"), (4, 5), "proj", **place, proj__transform=[20, 0, 500000, 0, -20, 5000000])
    layers = [layer_of(store.nodes[path], store.read(path)) for path in ("/0/a", "/1/a")]
    assert [(layer.name, layer.level) for layer in layers] == [("0/a", 0), ("1/a", 1)]
    written = write_conventions(layers)
    assert written.attributes["1/a"]["spatial:transform"] == [20, 0, 500000, 0, -20, 5000000]
    assert written.attributes[""]["multiscales"]["layout"][1]["derived_from"] == "0"


def test_an_array_of_no_place_and_no_names_is_still_a_layer(store):
    node = store.array("/a", (), (4, 5))
    layer = layer_of(node, store.read("/a"))
    assert (layer.dims, layer.georeference) == (("dim_0", "dim_1"), None)
