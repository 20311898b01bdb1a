"""What an index says in Zarr: groups, dimensions, labels, GeoZarr attributes and CF, as deployed readers take them."""

import base64
import json
import math
import struct
from dataclasses import replace

import numpy as np
import pytest
import zarr
from zarr.core.metadata.v3 import ArrayV3Metadata

from periplus.conventions.node import Node
from periplus.conventions.read import understand
from periplus.errors import FormatError
from periplus.model import Array, Catalog, Coordinate, Encoding, Georeference, GroundControlPoint
from periplus.testing.indexes import ZSTD, stacked
from periplus.zarr.description.metadata import MOST_CONSOLIDATED, layout

UUIDS = {
    "multiscales": "d35379db-88df-4056-af3a-620245f8e347",
    "spatial": "689b58e2-cf7b-45e0-9fff-9cfc0883d6b4",
    "proj": "f17cb550-5864-4468-aeb7-f3180cfb622f",
}


def array(name="0/data", **changes):
    facts = {
        "dims": ("bands", "y", "x"), "shape": (3, 90, 120), "chunks": (3, 32, 32), "dtype": np.dtype("u2"),
        "encodings": (Encoding(ZSTD),),
        "georeference": Georeference(crs="EPSG:32633", transform=(10.0, 0.0, 3e5, 0.0, -10.0, 5.2e6)),
    } | changes  # fmt: skip
    return Array(name=name, **facts)


def said(*arrays, **facts):
    return layout(Catalog(arrays={a.name: a for a in arrays}, **facts)).documents


def computed(catalog, path):
    """All values of labels, from their chunks."""
    leaf = layout(catalog).leaves[path]
    chunks = [leaf.compute((n,)) for n in range(leaf.grid[0])]
    return np.frombuffer(b"".join(chunks), leaf.document["data_type"])[: leaf.document["shape"][0]]


def test_all_documents_are_json_and_zarr_takes_them():
    catalog, _, _ = stacked()
    found = layout(catalog).documents
    assert list(found)[:3] == ["", "0", "1"]
    for path, document in found.items():
        text = json.dumps(document, allow_nan=False)
        assert json.loads(text) == document
        if document["node_type"] == "array":
            assert ArrayV3Metadata.from_dict(json.loads(text)).shape == tuple(document["shape"]), path


def test_conventions_are_declared_by_the_uuids_of_their_schemas():
    catalog, _, _ = stacked()
    for path, document in layout(catalog).documents.items():
        entries = document["attributes"].get("zarr_conventions", [])
        names = {entry["name"]: entry["uuid"] for entry in entries}
        wanted = {"": {"multiscales", "spatial", "proj"}}.get(path, {"spatial", "proj"})
        if path in ("", "0", "1", "0/data", "1/data"):
            assert set(names) == wanted, path
            assert all(UUIDS[name] == uuid for name, uuid in names.items())
            assert all(set(e) == {"uuid", "name", "schema_url", "spec_url", "description"} for e in entries)
            assert all("/v0.1/" in e["schema_url"] for e in entries)
        else:
            assert not entries, path


def test_levels_have_absolute_transforms_and_relative_scales_of_y_and_x():
    fine, coarse = array(), array("1/data", shape=(3, 45, 61), level=1)
    a, b = 120 / 61, 90 / 45
    coarse = replace(
        coarse, georeference=Georeference(crs="EPSG:32633", transform=(10 * a, 0.0, 3e5, 0.0, -10 * b, 5.2e6))
    )
    root = said(fine, coarse)[""]["attributes"]
    first, second = root["multiscales"]["layout"]
    assert first["asset"] == "0"
    assert "derived_from" not in first
    assert first["transform"] == {"scale": [1.0] * 2, "translation": [0.0] * 2}
    assert (second["asset"], second["derived_from"]) == ("1", "0")
    assert second["transform"] == {"scale": [b, a], "translation": [0.0] * 2}
    assert second["spatial:shape"] == [45, 61]
    assert second["spatial:transform"] == [10 * a, 0.0, 3e5, 0.0, -10 * b, 5.2e6]
    assert root["spatial:bbox"] == [3e5, 5.2e6 - 900, 3e5 + 1200, 5.2e6]
    assert "spatial:transform" not in root
    assert "spatial:registration" not in root  # GDAL would then ignore levels whose scale does not count the bands


def test_the_crs_is_said_as_code_wkt2_and_projjson():
    found = said(array())
    root = found[""]["attributes"]
    assert root["proj:code"] == "EPSG:32633"
    assert root["proj:wkt2"].startswith("PROJCRS[")
    assert root["proj:projjson"]["type"] == "ProjectedCRS"
    for path in ("0", "0/data"):
        assert found[path]["attributes"]["proj:wkt2"] == root["proj:wkt2"]
    mapping = found["0/spatial_ref"]["attributes"]
    assert mapping["crs_wkt"] == mapping["spatial_ref"] == root["proj:wkt2"]
    assert mapping["grid_mapping_name"] == "transverse_mercator"
    assert mapping["GeoTransform"] == "300000.0 10.0 0.0 5200000.0 0.0 -10.0"
    assert found["0/data"]["attributes"]["grid_mapping"] == "spatial_ref"


def test_a_reader_of_conventions_finds_the_place_of_every_level():
    catalog, _, _ = stacked()
    nodes = {}
    for path, document in layout(catalog).documents.items():
        nodes[f"/{path}"] = Node(
            path=f"/{path}", kind=document["node_type"], attributes=document["attributes"],
            dims=tuple(document.get("dimension_names", ())), shape=tuple(document.get("shape", ())),
        )  # fmt: skip
    for level in (0, 1):
        found = understand(nodes[f"/{level}/data"], nodes.get)
        place = catalog.arrays[f"{level}/data"].georeference
        assert found.grid.corner == place.transform
        assert found.crs.code == "EPSG:32633"
        assert found.pyramid == "/"
        assert found.level.order == level
        assert not [d for d in found.diagnostics if d.severity != "info"]


def test_samples_at_nodes_are_said_at_nodes():
    place = Georeference(crs="EPSG:4326", transform=(0.1, 0.0, 9.95, 0.0, -0.1, 50.05), registration="point")
    own = said(array(shape=(1, 11, 21), georeference=place))["0/data"]["attributes"]
    assert own["spatial:registration"] == "node"
    np.testing.assert_allclose(own["spatial:transform"], [0.1, 0, 10, 0, -0.1, 50], atol=1e-12)
    np.testing.assert_allclose(own["spatial:bbox"], [10, 49, 12, 50])


def test_labels_of_x_and_y_are_pixel_centres_in_chunks_of_their_own():
    size = 150_000
    catalog = Catalog(arrays={"0/data": array(shape=(1, 4, size), chunks=(1, 4, 4096))})
    assert layout(catalog).leaves["0/x"].grid == (3,)
    np.testing.assert_array_equal(computed(catalog, "0/x"), np.arange(size) * 10.0 + (10.0 * 0.5 + 3e5))
    np.testing.assert_array_equal(computed(catalog, "0/y"), 5.2e6 - 5 - 10 * np.arange(4))
    assert said(*catalog.arrays.values())["0/x"]["attributes"]["standard_name"] == "projection_x_coordinate"


@pytest.mark.parametrize(
    "transform",
    [(1.0, 0.2, 0.0, -0.2, -1.0, 0.0), (1e-9, 0.0, 1e9, 0.0, -1e-9, 0.0), (math.nan, 0.0, 0.0, 0.0, -1.0, 0.0), None],
    ids=["turned", "too fine", "not a number", "none"],
)
def test_grids_without_distinct_upright_labels_have_none(transform):
    found = said(array(georeference=Georeference(crs="EPSG:32633", transform=transform)))
    assert "0/x" not in found
    assert "0/y" not in found
    assert "0/spatial_ref" in found
    for document in found.values():
        json.dumps(document, allow_nan=False)


def test_an_unknown_crs_is_kept_as_text_and_not_declared():
    found = said(array(georeference=Georeference(crs="WKT[oops]", transform=(1.0, 0.0, 0.0, 0.0, -1.0, 0.0))))
    assert found["0/spatial_ref"]["attributes"]["unknown_crs"] == "WKT[oops]"
    assert [entry["name"] for entry in found["0/data"]["attributes"]["zarr_conventions"]] == ["spatial"]


def test_control_points_and_coefficients_are_in_the_grid_mapping():
    points = (GroundControlPoint(column=0, row=0, x=1, y=2), GroundControlPoint(column=9, row=9, x=3, y=4))
    place = Georeference(crs="EPSG:4326", gcps=points, rpc={"LINE_OFF": 5})
    attributes = said(array(georeference=place))["0/spatial_ref"]["attributes"]
    assert len(json.loads(attributes["gcps"])["features"]) == 2
    assert json.loads(attributes["rpc"]) == {"LINE_OFF": 5}


def test_times_names_of_bands_and_their_numbers_are_labels():
    catalog, _, _ = stacked()
    assert computed(catalog, "0/time").tolist() == [18628, 18629, 18630, 18631, 18632]
    document = layout(catalog).documents["1/time"]
    assert document["attributes"]["units"] == "days since 1970-01-01"
    names = layout(catalog).leaves["0/bands"]
    assert names.document["data_type"] == "string"
    assert names.compute((0,)) == b"\3\0\0\0\5\0\0\0green\3\0\0\0red\3\0\0\0nir"
    assert computed(Catalog(arrays={"0/data": array()}), "0/bands").tolist() == [1, 2, 3]


def test_coordinates_of_any_rank_are_beside_the_arrays_they_fit():
    lat = Coordinate(name="lat", dims=("y", "x"), values=np.arange(90 * 120, dtype=">f4").reshape(90, 120))
    run = Coordinate(name="run", dims=(), values=np.array("first"))
    lag = Coordinate(name="bands", dims=("bands",), values=np.array([1, 2, 3], "m8[h]"))
    catalog = Catalog(arrays={"0/data": array()}, coordinates={"lat": lat, "run": run, "bands": lag})
    found = layout(catalog)
    assert found.leaves["0/data"].document["attributes"]["coordinates"] == "spatial_ref lat run"
    assert found.leaves["0/lat"].document["dimension_names"] == ["y", "x"]
    assert found.leaves["0/lat"].compute((0, 0)) == lat.values.astype("<f4").tobytes()
    assert found.leaves["0/run"].compute(()) == b"\1\0\0\0\5\0\0\0first"
    assert found.leaves["0/bands"].document["attributes"]["units"] == "seconds"
    assert computed(catalog, "0/bands").tolist() == [3600, 7200, 10800]


def test_large_coordinates_come_in_chunks_of_whole_rows():
    lat = Coordinate(name="lat", dims=("y", "x"), values=np.arange(900 * 120, dtype="<i4").reshape(900, 120))
    leaf = layout(Catalog(arrays={"0/data": array(shape=(1, 900, 120))}, coordinates={"lat": lat})).leaves["0/lat"]
    assert leaf.grid == (2, 1)
    rows = leaf.document["chunk_grid"]["configuration"]["chunk_shape"][0]
    whole = b"".join(leaf.compute((n, 0)) for n in range(2))
    assert len(whole) == 2 * rows * 120 * 4
    np.testing.assert_array_equal(np.frombuffer(whole, "<i4")[: 900 * 120], np.arange(900 * 120))


def test_arrays_of_one_group_on_two_grids_have_a_mapping_each_and_no_labels_in_common():
    east = Georeference(crs="EPSG:32634", transform=(20.0, 0.0, 4e5, 0.0, -10.0, 5.2e6))
    found = said(array(), array("0/more", georeference=east), array("0/again"))
    names = {name: found[f"0/{name}"]["attributes"]["grid_mapping"] for name in ("data", "more", "again")}
    assert names == {"data": "spatial_ref", "more": "spatial_ref_1", "again": "spatial_ref"}
    assert found["0/more"]["attributes"]["coordinates"] == "spatial_ref_1"
    assert "33N" in found["0/spatial_ref"]["attributes"]["crs_wkt"]
    assert "34N" in found["0/spatial_ref_1"]["attributes"]["crs_wkt"]
    assert "0/x" not in found
    assert "0/y" in found
    assert "spatial:transform" not in found["0"]["attributes"]


@pytest.mark.parametrize("value", ["much", {"a": 1}, 10**400])
def test_scales_that_are_no_numbers_are_refused_with_the_arrays_name(value):
    with pytest.raises(FormatError, match="scale_factor of 0/data"):
        said(array(attributes={"scale_factor": value}))


def test_a_coordinate_that_fits_no_dimension_is_left_out():
    other = Coordinate(name="bands", dims=("bands",), values=np.arange(7))
    assert said(array(), coordinates={"bands": other})["0/bands"]["shape"] == [3]


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        ("u1", 255, 255),
        ("u1", -9999, None),
        ("u1", 0.5, None),
        ("i2", -9999.0, -9999),
        ("u8", 2**64 - 1, 2**64 - 1),
        ("i4", math.nan, None),
        ("f4", math.nan, base64.b64encode(struct.pack("<d", math.nan)).decode()),
        ("f4", -9999, base64.b64encode(struct.pack("<d", -9999)).decode()),
        ("f4", "NaN", base64.b64encode(struct.pack("<d", math.nan)).decode()),
        ("c8", 0, None),
    ],
)
def test_nodata_is_said_as_xarray_reads_it(dtype, value, expected):
    own = said(array(dtype=np.dtype(dtype), attributes={"_FillValue": value}))["0/data"]["attributes"]
    assert own.get("_FillValue") == expected


def test_packing_that_differs_by_band_has_names_that_cf_does_not_know():
    packing = {"_FillValue": [0, None, 9], "scale_factor": [1.0, 2.0, 3.0], "add_offset": 0.5, "units": "K"}
    own = said(array(attributes=packing))["0/data"]["attributes"]
    assert own["band_nodata"] == [0, None, 9]
    assert own["band_scales"] == [1.0, 2.0, 3.0]
    assert own["add_offset"] == 0.5
    assert not {"_FillValue", "scale_factor"} & set(own)


@pytest.mark.parametrize(
    ("dtype", "fill", "expected"),
    [("f4", math.nan, "NaN"), ("f8", -math.inf, "-Infinity"), ("c8", complex(1, math.nan), [1.0, "NaN"]),
     ("u2", None, 0), ("bool", True, True), ("i8", -(2**63), -(2**63))],
)  # fmt: skip
def test_fill_values_are_said_as_zarr_spells_them(dtype, fill, expected):
    document = said(array(dtype=np.dtype(dtype), fill=fill))["0/data"]
    assert document["fill_value"] == expected
    stored = ArrayV3Metadata.from_dict(json.loads(json.dumps(document))).fill_value
    np.testing.assert_array_equal(stored, np.array(0 if fill is None else fill, dtype))


def test_arrays_of_one_group_agree_in_their_dimensions():
    mask = array("0/mask", shape=(1, 90, 120), chunks=(1, 32, 32), dtype=np.dtype("u1"))
    found = said(mask, array())
    assert found["0/data"]["dimension_names"] == ["bands", "y", "x"]
    assert found["0/mask"]["dimension_names"] == ["mask_bands", "y", "x"]
    assert found["0/bands"]["shape"] == [3]


def test_a_dimension_that_is_renamed_is_clipped_as_before():
    clipped = Encoding(array().encodings[0].codecs, clipped=("y",))
    short = array("0/other", shape=(1, 80, 120), chunks=(1, 32, 120), encodings=(clipped,))
    found = said(array(), short)["0/other"]
    assert found["dimension_names"] == ["other_bands", "other_y", "x"]
    assert found["codecs"] == said(short)["0/other"]["codecs"]


def test_arrays_that_no_level_is_named_after_have_no_layout():
    sst = array("sst", dims=("lat", "lon"), shape=(9, 12), chunks=(4, 4))
    found = said(sst)
    assert "multiscales" not in found[""]["attributes"]
    assert found["sst"]["attributes"]["spatial:dimensions"] == ["lat", "lon"]
    assert {"lat", "lon", "spatial_ref"} <= set(found)


def test_the_root_of_many_images_has_the_box_around_them():
    east = Georeference(crs="EPSG:32633", transform=(10.0, 0.0, 4e5, 0.0, -10.0, 5.2e6))
    root = said(array("a/0/data"), array("b/0/data", georeference=east))[""]["attributes"]
    assert root["spatial:bbox"] == [3e5, 5.2e6 - 900, 4e5 + 1200, 5.2e6]
    assert root["proj:code"] == "EPSG:32633"
    assert "multiscales" not in root


def test_what_the_index_says_of_groups_is_kept():
    found = said(array(), attributes={"": {"title": "t", "none": None, "odd": math.inf}, "notes/more": {"a": [1]}})
    assert found[""]["attributes"]["title"] == "t"
    assert found[""]["attributes"]["odd"] == "Infinity"
    assert "none" not in found[""]["attributes"]
    assert found["notes"]["node_type"] == found["notes/more"]["node_type"] == "group"
    assert found["notes/more"]["attributes"]["a"] == [1]


def test_an_array_within_an_array_is_refused():
    with pytest.raises(FormatError, match="'a/data' is both an array and a group"):
        said(array("a/data"), array("a/data/b"))


def test_very_many_groups_are_not_consolidated_but_each_is():
    one = array()
    arrays = {f"s{n}/0/data": one.renamed(f"s{n}/0/data") for n in range(MOST_CONSOLIDATED)}
    found = layout(Catalog(arrays=arrays))
    assert "consolidated_metadata" not in found.consolidated("")
    inner = found.consolidated("s7")["consolidated_metadata"]["metadata"]
    assert list(inner) == ["0", "0/bands", "0/data", "0/spatial_ref", "0/x", "0/y"]


def test_the_metadata_make_a_store_of_zarrs_own(tmp_path):
    catalog, _, _ = stacked()
    for path, document in layout(catalog).documents.items():
        folder = tmp_path / path
        folder.mkdir(exist_ok=True, parents=True)
        (folder / "zarr.json").write_text(json.dumps(document))
    group = zarr.open_group(tmp_path, mode="r")
    assert group["1/data"].shape == catalog.arrays["1/data"].shape
