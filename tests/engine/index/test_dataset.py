"""What a Dataset has before any byte is read: names, labels, CRS, packing, chunks. Sources do not even exist."""

import json
import pickle

import numpy as np
import pytest
import rioxarray  # noqa: F401  (registers .rio)
import xarray as xr

from periplus.engine.assemble.indexes import AxisIndex
from periplus.engine.index.backend import PeriplusBackend
from periplus.errors import FormatError, MissingError
from periplus.facade import Index
from periplus.fetch import Fetch
from periplus.limits import Limits
from periplus.model import Array, Catalog, Coordinate, Encoding, Files, Georeference, GroundControlPoint
from periplus.table import memory_table

UTM = Georeference(crs="EPSG:32633", transform=(10.0, 0.0, 300000.0, 0.0, -10.0, 5200000.0))
PIPELINE = ({"name": "bytes", "configuration": {"endian": "little"}},)
NO_FILES = Files.of([])


def array(name, shape=(2, 50, 60), *, chunks=None, dtype="int16", dims=("bands", "y", "x"), place=UTM, **rest):
    return Array(
        name=name,
        dims=dims,
        shape=shape,
        chunks=chunks or (*shape[:-2], 16, 32),
        dtype=np.dtype(dtype),
        encodings=(Encoding(PIPELINE),),
        georeference=place,
        **rest,
    )


def index_of(*arrays, **rest):
    """An index of arrays of which no chunk exists, so that all is fill."""
    catalog = Catalog(arrays={a.name: a for a in arrays}, **rest)
    return Index(memory_table(catalog, {}, NO_FILES), Fetch(), Limits())


def opened(*arrays, **options):
    return xr.open_dataset(index_of(*arrays), engine="periplus", **options)


def test_a_level_has_data_bands_labels_and_crs():
    dataset = opened(array("0/data"))
    assert dict(dataset.sizes) == {"bands": 2, "y": 50, "x": 60}
    assert set(dataset.coords) == {"bands", "y", "x", "spatial_ref"}
    assert dataset.bands.values.tolist() == [1, 2]
    assert dataset.x.values[[0, -1]].tolist() == [300005, 300595]
    assert dataset.y.values[[0, -1]].tolist() == [5199995, 5199505]
    assert dataset.x.attrs["standard_name"] == "projection_x_coordinate"
    assert dataset.data.rio.crs.to_epsg() == 32633
    assert tuple(dataset.rio.transform())[:6] == UTM.transform
    assert dataset.rio.bounds() == (300000, 5199500, 300600, 5200000)
    assert dataset.data.encoding["grid_mapping"] == "spatial_ref"
    assert dataset.data.encoding["chunksizes"] == (2, 16, 32)


def test_missing_chunks_are_fill():
    assert (opened(array("0/data", fill=7)).data.values == 7).all()


def test_band_names_label_the_bands():
    dataset = opened(array("0/data", attributes={"band_names": ["red", "nir"], "units": "1"}))
    assert dataset.bands.values.tolist() == ["red", "nir"]
    assert dataset.sel(bands="nir").data.shape == (50, 60)
    assert dataset.data.attrs == {"units": "1"}


@pytest.mark.parametrize("names", [["a", "a"], ["a", ""], ["a"], [], None])
def test_band_names_that_name_nothing_are_numbers(names):
    assert opened(array("0/data", attributes={"band_names": names})).bands.values.tolist() == [1, 2]


def test_a_mask_serves_all_bands():
    dataset = opened(array("0/data", (3, 50, 60)), array("0/mask", (1, 50, 60), dtype="uint8"))
    assert dataset.mask.dims == ("y", "x")
    assert dataset.mask.encoding["preferred_chunks"] == {"y": 16, "x": 32}
    assert dataset.data.where(dataset.mask > 0).dims == ("bands", "y", "x")


def test_dimensions_of_one_name_and_two_sizes_stay_apart():
    dataset = opened(array("0/data"), array("0/angle", (5, 9), dims=("y", "x"), place=None, chunks=(5, 9)))
    assert dataset.angle.dims == ("angle_y", "angle_x")
    assert dataset.data.dims == ("bands", "y", "x")


PACKED = {"_FillValue": -9999, "scale_factor": 2, "add_offset": 0.5}


def test_packing_goes_through_the_decoding_of_xarray():
    dataset = opened(array("0/data", attributes=PACKED, fill=-9999))
    assert dataset.data.dtype == np.float64
    assert dataset.data.isnull().all()
    assert dataset.data.encoding["_FillValue"] == -9999
    assert dataset.data.encoding["dtype"] == np.int16
    assert dataset.data.encoding["scale_factor"] == 2
    raw = opened(array("0/data", attributes=PACKED, fill=-9999), mask_and_scale=False)
    assert raw.data.dtype == np.int16
    assert raw.data.attrs["_FillValue"] == -9999
    assert opened(array("0/data", attributes=PACKED), mask_and_scale={"data": False}).data.dtype == np.int16


def test_nodata_that_no_pixel_can_have_changes_nothing():
    assert opened(array("0/data", dtype="uint8", attributes={"_FillValue": -9999})).data.dtype == np.uint8


def test_bands_packed_differently_are_unpacked_all_the_same():
    attributes = {"_FillValue": 3, "scale_factor": [0.5, 2.0]}
    dataset = opened(array("0/data", attributes=attributes, fill=4))
    assert dataset.data[:, 0, 0].values.tolist() == [2, 8]
    assert opened(array("0/data", attributes=attributes, fill=3)).data.isnull().all()
    raw = opened(array("0/data", attributes=attributes, fill=4), mask_and_scale=False)
    assert raw.data.attrs["scale_factor"] == [0.5, 2.0]
    assert raw.data.dtype == np.int16


def stacked(values, attributes=None, **options):
    cube = array("0/data", (3, 2, 50, 60), dims=("time", "bands", "y", "x"), chunks=(1, 2, 16, 32))
    coordinate = Coordinate(name="time", dims=("time",), values=values, attributes=attributes or {})
    return xr.open_dataset(index_of(cube, coordinates={"time": coordinate}), engine="periplus", **options)


def test_time_is_an_ordinary_index_of_moments():
    times = np.array(["2021-01-05", "2021-02-04", "2021-03-06T10:20:30"], "datetime64[us]")
    dataset = stacked(times)
    assert dataset.time.dtype.kind == "M"
    assert (dataset.time.values == times).all()
    assert dataset.sel(time="2021-02").sizes["time"] == 1
    assert dataset.time.encoding["units"] == "seconds since 1970-01-01"
    raw = stacked(times, decode_times=False)
    assert raw.time.attrs["units"] == "seconds since 1970-01-01"
    assert raw.time.dtype == np.int64


def test_a_coordinate_in_cf_numbers_is_decoded_too():
    dataset = stacked(np.array([0, 1, 2]), {"units": "days since 2021-01-01"})
    assert dataset.time.values[2] == np.datetime64("2021-01-03")
    assert stacked(np.array([10.0, 20.0, 30.0])).time.values.tolist() == [10, 20, 30]


def test_an_array_counts_before_labels_of_its_name():
    given = {name: Coordinate(name="data", dims=("y",), values=np.arange(50)) for name in ("data", "0/data")}
    for name, coordinate in given.items():
        index = index_of(array("0/data", fill=7), array("0/spatial_ref", fill=8), coordinates={name: coordinate})
        dataset = xr.open_dataset(index, engine="periplus")
        assert set(dataset.data_vars) == {"data", "spatial_ref"}
        assert (dataset.data == 7).all()
        assert (dataset.spatial_ref == 8).all()


SERIES = {"shape": (25, 2, 1500, 1000), "chunks": (1, 1, 256, 256), "dims": ("time", "bands", "y", "x")}


def test_a_chunk_of_dask_is_many_of_the_source():
    dataset = opened(array("0/data", **SERIES), chunks={})
    assert dataset.data.chunks == ((7, 7, 7, 4), (1, 1), (512, 512, 476), (512, 488))
    assert not dataset.x.chunks
    assert opened(array("0/data"), chunks={}).data.data.npartitions == 1
    uneven = array("0/data", (1, 2500, 3000), chunks=(1, 1500, 3000), edges=(None, (1500, 1000), None))
    assert opened(uneven, chunks={}).data.chunks == ((1,), (1500, 1000), (3000,))


@pytest.mark.parametrize("engine", ["periplus", "xgroup"])
def test_chunks_that_the_user_chooses_are_warned_of_only_where_they_split_stored_ones(engine):
    index = index_of(array("0/data", **SERIES))

    def chunks(given):
        group = {"group": "0"} if engine == "xgroup" else {}
        return xr.open_dataset(index, engine=engine, chunks=given, **group).data.chunks

    assert chunks(None) is None
    assert chunks({"time": 1})[0] == (1,) * 25
    assert chunks({"time": 1, "y": 256, "x": 256})[2:] == ((256,) * 5 + (220,), (256, 256, 256, 232))
    assert chunks({"time": -1, "y": 768})[0::2] == ((25,), (768, 732))
    for sizes, stored in zip(chunks("auto"), SERIES["chunks"], strict=True):
        assert all(size % stored == 0 for size in sizes[:-1])
    with pytest.warns(UserWarning, match="separate the stored chunks"):
        chunks({"y": 100})


def test_variables_of_a_dataset_have_the_same_chunks():
    wide = {**SERIES, "shape": (25, 4, 1500, 1000), "chunks": (1, 4, 256, 256)}
    mask = {**SERIES, "shape": (25, 1, 1500, 1000), "dtype": "uint8"}
    dataset = opened(array("0/data", **wide), array("0/mask", **mask), chunks={})
    assert dataset.chunks["time"] == (7, 7, 7, 4)  # xarray refuses to list chunks that differ


def test_renamed_dimensions_keep_their_chunks():
    other = array("0/angle", (3000, 1000), dims=("y", "x"), place=None, chunks=(5, 1000))
    dataset = opened(array("0/data", (2, 4000, 2000)), other, chunks={})
    assert dataset.angle.dims == ("angle_y", "angle_x")
    assert dataset.angle.chunks == ((1000, 1000, 1000), (1000,))


def test_labels_of_x_and_y_are_kept_as_asked():
    big = array("0/data", (1, 50, 100_000), chunks=(1, 50, 1000))
    assert isinstance(opened(big).xindexes["x"], AxisIndex)
    assert not isinstance(opened(big).xindexes["y"], AxisIndex)
    assert not isinstance(opened(big, coords="memory").xindexes["x"], AxisIndex)
    assert isinstance(opened(big, coords="lazy").xindexes["y"], AxisIndex)
    assert opened(big, chunks={}).x.chunks is None
    assert "x" not in opened(big, coords="none").coords
    assert opened(big, coords="none").rio.crs.to_epsg() == 32633
    with pytest.raises(ValueError, match="coords must be one of"):
        opened(big, coords="numpy")


def test_a_world_of_pixels_opens_at_once():
    place = Georeference(crs="EPSG:4326", transform=(1e-4, 0, -180, 0, -1e-4, 90))
    index = index_of(array("0/data", (1, 1_800_000, 3_600_000), chunks=(1, 512, 512), place=place))
    dataset = xr.open_dataset(index, engine="periplus")
    part = dataset.sel(x=slice(10, 10.01), y=slice(50.01, 50)).data
    assert part.shape == (1, 100, 100)
    assert (part.values == 0).all()
    assert dataset.rio.bounds() == pytest.approx((-180, -90, 180, 90))


def test_a_turned_grid_keeps_its_transform():
    turned = (8.0, 3.0, 1000.0, 2.5, -9.0, 5000.0)
    dataset = opened(array("0/data", place=Georeference(crs="EPSG:32633", transform=turned)))
    assert tuple(dataset.rio.transform())[:6] == turned
    assert dataset.xc.dims == ("y", "x")
    assert dataset.xc.attrs["standard_name"] == "projection_x_coordinate"
    without = opened(array("0/data", place=Georeference(crs="EPSG:32633", transform=turned)), drop_variables="xc")
    assert set(without.coords) == {"bands", "yc", "spatial_ref"}
    assert without.isel(x=slice(3, 5)).yc.shape == (50, 2)


@pytest.mark.parametrize("transform", [(0, 0, 0, 0, 0, 0), (1, 2, 0, 2, 4, 0), (np.nan, 1, 0, 1, 1, 0)])
def test_a_transform_without_inverse_gives_no_coordinates(transform):
    dataset = opened(array("0/data", place=Georeference(crs="EPSG:32633", transform=transform)))
    assert set(dataset.coords) == {"bands", "spatial_ref"}


def test_arrays_of_other_grids_have_dimensions_and_grid_mappings_of_their_own():
    other = Georeference(crs="EPSG:32632", transform=(10.0, 0.0, 500000.0, 0.0, -10.0, 5200000.0))
    dataset = opened(array("0/data"), array("0/other", place=other))
    assert dataset.data.dims == ("bands", "y", "x")
    assert dataset.other.dims == ("bands", "y", "other_x")
    assert dataset.other_x.values[0] == 500005
    assert dataset.data.rio.crs.to_epsg() == 32633
    assert dataset.other.rio.crs.to_epsg() == 32632


def test_rows_and_columns_are_found_by_name():
    dataset = opened(array("0/data", (50, 60, 3), dims=("y", "x", "bands"), chunks=(16, 32, 3)))
    assert dataset.x.values[[0, -1]].tolist() == [300005, 300595]
    assert dataset.y.size == 50


def test_ungeoreferenced_arrays_have_dimensions_only():
    dataset = opened(array("0/data", place=None))
    assert set(dataset.coords) == {"bands"}
    assert "grid_mapping" not in dataset.data.encoding


def test_control_points_and_rpc_are_attributes():
    points = (GroundControlPoint(column=0, row=0, x=10, y=50), GroundControlPoint(column=60, row=50, x=11, y=49))
    dataset = opened(array("0/data", place=Georeference(crs="EPSG:4326", gcps=points, rpc={"LINE_OFF": 3.5})))
    assert [(p.col, p.row, p.x, p.y) for p in dataset.rio.get_gcps()] == [(0, 0, 10, 50), (60, 50, 11, 49)]
    assert json.loads(dataset.spatial_ref.attrs["rpc"]) == {"LINE_OFF": 3.5}
    assert "x" not in dataset.coords


def test_a_crs_nobody_knows_is_a_warning_and_the_pixels_are_there():
    place = Georeference(crs="EPSG:999999", transform=UTM.transform)
    with pytest.warns(UserWarning, match="EPSG:999999"):
        dataset = opened(array("0/data", place=place))
    assert dataset.rio.crs is None
    assert dataset.spatial_ref.attrs["unknown_crs"] == "EPSG:999999"
    assert tuple(dataset.rio.transform())[:6] == UTM.transform


def test_attributes_can_be_written_to_files():
    attributes = {"colormap": {"0": [0, 0, 0, 255]}, "list": [1, 2], "mixed": [1, "a"], "none": None, "text": "t"}
    got = opened(array("0/data", attributes=attributes)).data.attrs
    assert got == {"colormap": '{"0": [0, 0, 0, 255]}', "list": [1, 2], "mixed": '[1, "a"]', "text": "t"}


def test_variables_can_be_dropped():
    dataset = opened(array("0/data"), array("0/mask", (1, 50, 60)), drop_variables=["mask", "x"])
    assert list(dataset.data_vars) == ["data"]
    assert "x" not in dataset.coords
    assert set(opened(array("0/data"), drop_variables="spatial_ref").coords) == {"bands", "y", "x"}


PYRAMID = [array("0/data"), array("1/data", (2, 25, 30), level=1), array("images/1/0/data", (2, 5, 6))]


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({}, (2, 50, 60)),
        ({"group": "0"}, (2, 50, 60)),
        ({"group": "/1"}, (2, 25, 30)),
        ({"level": 1}, (2, 25, 30)),
        ({"group": "images/1"}, (2, 5, 6)),
        ({"group": "images/1", "level": 0}, (2, 5, 6)),
        ({"group": "images/1/0/"}, (2, 5, 6)),
    ],
)
def test_groups_and_levels(options, shape):
    assert opened(*PYRAMID, **options).data.shape == shape


@pytest.mark.parametrize(
    "options", [{"group": "2"}, {"level": 2}, {"group": "images/2"}, {"group": "images/1", "level": 1}]
)
def test_groups_that_are_not_there_are_missing(options):
    with pytest.raises(MissingError, match=r"its groups are (images/1/0, )?0, 1"):
        opened(*PYRAMID, **options)


def test_an_index_of_many_files_names_them():
    many = [
        array(f"scene{n}/{level}/data", (1, 4 >> level, 4 >> level), level=level) for n in range(12) for level in (0, 1)
    ]
    with pytest.raises(MissingError, match=r"give group= one of 'scene0', 'scene1'.*12 in all"):
        opened(*many)
    assert opened(*many, group="scene3").data.shape == (1, 4, 4)
    assert opened(*many, group="scene3", level=1).data.shape == (1, 2, 2)
    assert opened(*many[:2]).data.shape == (1, 4, 4)


def test_arrays_at_the_root_are_one_dataset():
    dataset = opened(array("sst", (3, 4), dims=("lat", "lon"), place=None, chunks=(3, 4)), *PYRAMID)
    assert dataset.sst.dims == ("lat", "lon")


def test_a_dataset_has_what_its_file_and_image_say():
    said = {"": {"title": "all", "note": "whole"}, "1": {"note": "half"}, "images/1": {"kind": "cloud"}}
    index = index_of(*PYRAMID, attributes=said)
    assert xr.open_dataset(index, engine="periplus", level=1).attrs == {"title": "all", "note": "half"}
    further = xr.open_dataset(index, engine="periplus", group="images/1")
    assert further.attrs == {"title": "all", "note": "whole", "kind": "cloud"}


def test_a_tree_has_a_node_a_level_and_nodes_do_not_clash():
    index = index_of(*PYRAMID, attributes={"": {"title": "all"}, "1": {"note": "half"}})
    tree = xr.open_datatree(index, engine="periplus")
    assert set(tree.groups) == {"/", "/0", "/1", "/images", "/images/1", "/images/1/0"}
    assert tree.attrs["title"] == "all"
    assert tree["1"].attrs["note"] == "half"
    assert tree["1/data"].shape == (2, 25, 30)
    assert tree["1"].x.size == 30
    part = xr.open_datatree(index, engine="periplus", group="images/1", chunks={})
    assert set(part.groups) == {"/", "/0"}
    assert part["0/data"].chunks is not None
    groups = xr.open_groups(index, engine="periplus", coords="none")
    assert set(groups) == {"/", "/0", "/1", "/images/1/0"}
    assert "x" not in groups["/0"].coords
    with pytest.raises(MissingError, match="no group 'scene'"):
        xr.open_datatree(index, engine="periplus", group="scene")


def test_arrays_that_do_not_align_with_groups_below_are_in_a_node_base():
    tree = xr.open_datatree(index_of(array("data", (2, 9, 9)), *PYRAMID[:1]), engine="periplus")
    assert set(tree.groups) == {"/", "/base", "/0"}
    assert tree["base/data"].shape == (2, 9, 9)
    assert tree["0/data"].shape == (2, 50, 60)


def test_an_index_is_recognised_without_its_engine_named():
    dataset = xr.open_dataset(index_of(array("0/data")))
    assert dataset.data.shape == (2, 50, 60)
    assert not PeriplusBackend().guess_can_open(b"II*\x00")
    assert not PeriplusBackend().guess_can_open(np.zeros(3))


def test_a_lazy_dataset_travels():
    again = pickle.loads(pickle.dumps(opened(array("0/data", fill=5))))
    assert (again.data[0, :3, :3].values == 5).all()
    assert again.rio.crs.to_epsg() == 32633


def test_lists_of_packing_without_bands_are_refused():
    with pytest.raises(FormatError, match="no bands"):
        opened(array("0/data", (5, 6), dims=("y", "x"), chunks=(5, 6), attributes={"scale_factor": [1, 2]}))


@pytest.mark.parametrize("name", ["_FillValue", "scale_factor", "add_offset"])
@pytest.mark.parametrize("value", ["", "x", {}, [[]], ["1", {}], 10**400])
def test_packing_that_is_no_number_is_a_format_error(name, value):
    with pytest.raises(FormatError):
        opened(array("0/data", attributes={name: value}))


@pytest.mark.parametrize("names", [3, "ab", {"a": 1}, [[], {}], [{"a": 1}, {"a": 1}]])
def test_band_names_of_any_kind_do_no_harm(names):
    assert opened(array("0/data", attributes={"band_names": names})).sizes["bands"] == 2


def test_more_chunks_and_bands_than_can_be_listed_are_not_listed():
    vast = array("0/data", (2**30, 2**21, 8), chunks=(1, 1, 8), dtype="u1", place=None)
    dataset = opened(vast, chunks={})
    assert "bands" not in dataset.coords
    assert dataset.data[-1, -1].values.tolist() == [0] * 8
