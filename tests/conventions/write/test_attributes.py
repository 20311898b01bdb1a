"""What is written is what the schemas demand, places pixels where GDAL places them, and the CF grid mapping agrees."""

from dataclasses import replace

import numpy as np
import pyproj
import pytest
from affine import Affine

from periplus.conventions.identity import KEY
from periplus.conventions.proj.crs import grid_mapping
from periplus.conventions.publish import write_conventions
from periplus.conventions.write.attributes import (
    Layer,
    array_attributes,
    declare,
    merged,
    multiscales_attributes,
    proj_attributes,
    spatial_attributes,
)
from periplus.errors import FormatError
from periplus.model import Array, Georeference

UTM = (10.0, 0.0, 500000.0, 0.0, -10.0, 5000000.0)
HERE = Georeference(crs="EPSG:32633", transform=UTM)


def layers(*sizes, place=HERE, variable="data", prefix="", dims=("bands", "y", "x")):
    made = []
    for n, size in enumerate(sizes):
        a, b, c, d, e, f = place.transform
        transform = (a * 2**n, b * 2**n, c, d * 2**n, e * 2**n, f)
        georeference = Georeference(crs=place.crs, transform=transform, registration=place.registration)
        made.append(
            Layer(
                name=f"{prefix}{n}/{variable}",
                dims=dims,
                shape=(3, *size)[3 - len(dims) :] if len(dims) <= 3 else (1, 3, *size),
                level=n,
                georeference=georeference,
            )
        )
    return made


def test_spatial_attributes_of_pixels():
    assert spatial_attributes(HERE, (3, 40, 50), ("bands", "y", "x")) == {
        "spatial:dimensions": ["y", "x"],
        "spatial:shape": [40, 50],
        "spatial:transform": list(UTM),
        "spatial:bbox": [500000.0, 4999600.0, 500500.0, 5000000.0],
        "spatial:registration": "pixel",
    }


def test_spatial_attributes_of_points_are_those_of_nodes():
    place = Georeference(transform=(1.0, 0, -0.5, 0, -1.0, 10.5), registration="point")
    attributes = spatial_attributes(place, (11, 21), ("lat", "lon"))
    assert attributes["spatial:transform"] == [1, 0, 0, 0, -1, 10]
    assert attributes["spatial:bbox"] == [0, 0, 20, 10]
    assert attributes["spatial:registration"] == "node"


@pytest.mark.parametrize("transform", [(8.0, -3, 5e5, -3, -8, 5e6), (0.0, 5, 5e5, 5, 0, 5e6), (10.0, 0, 0, 0, 10, 0)])
def test_the_box_holds_all_corners_of_turned_and_flipped_grids(transform):
    xmin, ymin, xmax, ymax = spatial_attributes(Georeference(transform=transform), (4, 7), ("y", "x"))["spatial:bbox"]
    corners = np.array([Affine(*transform) @ (col, row) for col in (0, 7) for row in (0, 4)])
    assert (xmin, ymin, xmax, ymax) == (*corners.min(0), *corners.max(0))


def test_other_names_of_spatial_dimensions_in_any_order():
    attributes = spatial_attributes(HERE, (50, 40, 2), ("lon", "lat", "t"), spatial_dims=("lat", "lon"))
    assert attributes["spatial:shape"] == [40, 50]
    with pytest.raises(FormatError):
        spatial_attributes(HERE, (50, 40), ("lon", "lat"), spatial_dims=("y", "x"))


@pytest.mark.parametrize("crs", ["EPSG:32633", "EPSG:4326", "OGC:CRS84", "+proj=laea +lat_0=51 +lon_0=9 +datum=WGS84"])
def test_proj_attributes_all_mean_the_crs(crs):
    attributes = proj_attributes(crs)
    meant = pyproj.CRS(crs)
    assert attributes["proj:wkt2"].startswith(("PROJCRS", "GEOGCRS"))
    assert pyproj.CRS(attributes["proj:wkt2"]) == meant
    assert pyproj.CRS(attributes["proj:projjson"]) == meant
    assert attributes.get("proj:code") == (None if crs.startswith("+") else crs)


def test_a_text_that_is_no_crs_is_refused():
    with pytest.raises(FormatError):
        proj_attributes("nowhere")


def test_multiscales_have_a_version_and_a_scale_for_y_and_x():
    found = layers((101, 100), (51, 50), (26, 25))
    made = multiscales_attributes([(layer.name, layer) for layer in found])
    layout = made["multiscales"]["layout"]
    assert [item["asset"] for item in layout] == ["0/data", "1/data", "2/data"]
    assert "derived_from" not in layout[0]
    assert [item["derived_from"] for item in layout[1:]] == ["0/data", "1/data"]
    assert made["multiscales"]["version"] == "0.1.0"
    assert layout[0]["transform"] == {"scale": [1.0, 1.0], "translation": [0.0, 0.0]}
    assert layout[1]["transform"] == {"scale": [2.0, 2.0], "translation": [0.0, 0.0]}
    # Where nothing says how large pixels are, sizes do.
    bare = [(layer.name, replace(layer, georeference=None)) for layer in found]
    assert multiscales_attributes(bare)["multiscales"]["layout"][1]["transform"]["scale"] == [101 / 51, 2.0]
    assert layout[2]["spatial:transform"] == [40, 0, 500000, 0, -40, 5000000]
    assert layout[2]["spatial:shape"] == [26, 25]


def test_a_pyramid_needs_levels_of_one_rank():
    with pytest.raises(FormatError):
        multiscales_attributes([])
    two = [("0", layers((8, 8))[0]), ("1", layers((4, 4), dims=("y", "x"))[0])]
    with pytest.raises(FormatError):
        multiscales_attributes(two)


def test_declarations_are_made_once_and_others_stay():
    foreign = {"uuid": "11111111-1111-1111-1111-111111111111", "name": "other"}
    old = {"uuid": "689b58e2-cf7b-45e0-9fff-9cfc0883d6b4", "name": "spatial:"}
    made = declare("spatial", "proj", "spatial", existing=[foreign, old])[KEY]
    assert [entry["name"] for entry in made] == ["other", "spatial", "proj"]


def test_attributes_are_merged_without_declaring_twice():
    before = {"title": "t", **declare("proj"), "spatial:registration": "node"}
    after = merged(before, {**declare("spatial", "proj"), "spatial:registration": "pixel"})
    assert (after["title"], after["spatial:registration"]) == ("t", "pixel")
    assert [entry["name"] for entry in after[KEY]] == ["spatial", "proj"]
    assert merged({}, declare("cs")) == declare("cs")
    assert merged({KEY: "broken"}, declare("cs")) == declare("cs")


def test_an_array_without_a_place_gets_nothing():
    assert array_attributes(Layer(name="a", dims=("y", "x"), shape=(4, 5))) == {}
    assert array_attributes(Layer(name="a", dims=("x",), shape=(4,), georeference=HERE)) == {}
    assert array_attributes(Layer(name="a", dims=("y", "x"), shape=(4, 5), georeference=Georeference())) == {}


def test_the_twin_of_cf_means_the_same_place():
    attributes = grid_mapping("EPSG:32633", UTM)
    assert pyproj.CRS.from_cf(attributes) == pyproj.CRS("EPSG:32633")
    assert Affine.from_gdal(*map(float, attributes["GeoTransform"].split())) == Affine(*UTM)


def test_a_pyramid_is_written_on_its_group_its_levels_and_its_arrays():
    written = write_conventions(layers((101, 100), (51, 50)), resampling="average")
    assert sorted(written.attributes) == ["", "0", "0/data", "1", "1/data"]
    assert sorted(written.grid_mappings) == ["0/spatial_ref", "1/spatial_ref"]
    root, level, array = (written.attributes[path] for path in ("", "1", "1/data"))
    assert [entry["name"] for entry in root[KEY]] == ["multiscales", "spatial", "proj"]
    assert [entry["name"] for entry in level[KEY]] == [entry["name"] for entry in array[KEY]] == ["spatial", "proj"]
    assert root["spatial:bbox"] == [500000, 4998990, 501000, 5000000]
    assert "spatial:transform" not in root
    assert [item["asset"] for item in root["multiscales"]["layout"]] == ["0", "1"]
    assert root["multiscales"]["resampling_method"] == "average"
    assert array["spatial:transform"] == level["spatial:transform"] == [20, 0, 500000, 0, -20, 5000000]
    assert array["grid_mapping"] == "spatial_ref"
    assert root["proj:code"] == array["proj:code"] == "EPSG:32633"


def test_without_cf_there_is_no_twin():
    written = write_conventions(layers((8, 8)), cf=False)
    assert written.grid_mappings == {}
    assert "grid_mapping" not in written.attributes["0/data"]


def test_arrays_of_an_index_are_taken_as_they_are():
    array = Array(name="0/data", dims=("y", "x"), shape=(4, 5), chunks=(4, 5), dtype=np.dtype("u1"), georeference=HERE)
    assert write_conventions([array]).attributes["0/data"]["spatial:shape"] == [4, 5]


def test_masks_share_the_level_and_one_place_of_their_own_takes_it_from_the_layout():
    both = [*layers((8, 8), (4, 4)), *layers((8, 8), (4, 4), variable="mask", dims=("y", "x"))]
    root = write_conventions(both).attributes[""]
    assert root["multiscales"]["layout"][1]["spatial:transform"] == [20, 0, 500000, 0, -20, 5000000]
    assert root["multiscales"]["layout"][1]["transform"]["scale"] == [2, 2]
    moved = Georeference(crs="EPSG:32633", transform=(10.0, 0, 0, 0, -10, 0))
    both = [*layers((8, 8)), *layers((8, 8), variable="other", place=moved)]
    written = write_conventions(both)
    assert "spatial:transform" not in written.attributes[""]["multiscales"]["layout"][0]
    assert "0" not in written.attributes
    assert written.attributes["0/other"]["spatial:transform"] == [10, 0, 0, 0, -10, 0]
    assert sorted(written.grid_mappings) == ["0/spatial_ref", "0/spatial_ref_1"]
    assert written.attributes["0/other"]["grid_mapping"] == "spatial_ref_1"


def test_several_pyramids_have_groups_of_their_own_and_the_root_a_footprint():
    east = Georeference(crs="EPSG:32633", transform=(10.0, 0, 600000, 0, -10, 5000000))
    written = write_conventions([*layers((8, 8), prefix="a/"), *layers((8, 8), prefix="b/", place=east)])
    assert {"", "a", "b", "a/0", "b/0"} <= written.attributes.keys()
    root = written.attributes[""]
    assert root["spatial:bbox"] == [500000, 4999920, 600080, 5000000]
    assert [entry["name"] for entry in root[KEY]] == ["spatial", "proj"]
    other = Georeference(crs="EPSG:32632", transform=UTM)
    assert (
        ""
        not in write_conventions([*layers((8, 8), prefix="a/"), *layers((8, 8), prefix="b/", place=other)]).attributes
    )


def test_plain_arrays_get_their_own_place_and_no_pyramid():
    sst = Layer(name="sst", dims=("time", "lat", "lon"), shape=(2, 4, 5), georeference=HERE)
    spot = Layer(name="spatial_ref", dims=(), shape=())
    written = write_conventions([sst, spot])
    assert "multiscales" not in written.attributes[""]
    assert written.attributes["sst"]["spatial:dimensions"] == ["lat", "lon"]
    assert written.attributes["sst"]["grid_mapping"] == "spatial_ref_1"
    assert list(written.grid_mappings) == ["spatial_ref_1"]


def test_levels_without_a_place_still_are_a_pyramid():
    bare = [Layer(name=f"{n}/data", dims=("y", "x"), shape=(8 >> n, 8 >> n), level=n) for n in range(2)]
    written = write_conventions(bare)
    assert list(written.attributes) == [""]
    assert [entry["name"] for entry in written.attributes[""][KEY]] == ["multiscales"]


def test_transforms_that_are_not_finite_are_refused_and_empty_arrays_have_no_grid():
    with pytest.raises(FormatError):
        spatial_attributes(Georeference(transform=(float("nan"), 0, 0, 0, 1, 0)), (4, 5), ("y", "x"))
    empty = Layer(name="a", dims=("y", "x"), shape=(0, 5), georeference=HERE)
    assert "spatial:transform" not in write_conventions([empty]).attributes["a"]


def test_levels_of_any_name_are_a_pyramid_if_they_are_named():
    fine, coarse = layers((8, 8), (4, 4))
    fine = Layer(name="p/r10m/b", dims=fine.dims, shape=fine.shape, georeference=fine.georeference)
    coarse = Layer(name="p/r20m/b", dims=coarse.dims, shape=coarse.shape, georeference=coarse.georeference)
    written = write_conventions([fine, coarse], pyramids={"p": ["r10m", "r20m"]})
    layout = written.attributes["p"]["multiscales"]["layout"]
    assert [(item["asset"], item.get("derived_from")) for item in layout] == [("r10m", None), ("r20m", "r10m")]
    assert "p/r20m" in written.attributes
    with pytest.raises(FormatError, match="r40m"):
        write_conventions([fine], pyramids={"p": ["r10m", "r40m"]})
    assert "multiscales" not in str(write_conventions(layers((8, 8)), pyramids={}).attributes)


def test_what_is_written_may_be_changed_without_changing_what_is_written_next():
    proj_attributes("EPSG:32633")["proj:projjson"]["base_crs"]["name"] = "changed"
    assert proj_attributes("EPSG:32633")["proj:projjson"]["base_crs"]["name"] == "WGS 84"
