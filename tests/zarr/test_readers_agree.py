"""One table of metadata documents, and the CRS and transform that each reader of them finds: golden."""

import base64
import json
import re
import warnings
from contextlib import closing

import icechunk
import numpy as np
import pytest
import xarray as xr
import zarr
from pyproj import CRS

import periplus
from periplus.conventions.proj.crs import describe_crs
from periplus.conventions.read import Reader
from periplus.fetch import Fetch
from periplus.testing.hierarchies import declared
from periplus.validation.documents import read_documents

UTM33, UTM34 = CRS.from_epsg(32633), CRS.from_epsg(32634)
TRANSFORM = (10.0, 0.0, 500_000.0, 0.0, -10.0, 4_000_000.0)
GRID = {"spatial:dimensions": ["y", "x"], "spatial:transform": list(TRANSFORM)}
GDAL = "500000 10 0 4000000 0 -10"
CODE, WKT2, PROJJSON = (
    {"proj:code": "EPSG:32633"},
    {"proj:wkt2": UTM33.to_wkt()},
    {"proj:projjson": UTM33.to_json_dict()},
)
BOTH = declared("spatial", "proj")


def v3(attributes, dims=("y", "x"), **group):
    """A group with one array."""
    array = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [4, 5],
        "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 5]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": [{"name": "bytes"}],
        "attributes": attributes,
        "dimension_names": list(dims),
    }
    return {
        "zarr.json": {"zarr_format": 3, "node_type": "group", "attributes": group.get("group", {})},
        "a/zarr.json": array,
    }


def v2(attributes, **group):
    """The same in version 2."""
    array = {
        "zarr_format": 2,
        "shape": [4, 5],
        "chunks": [4, 5],
        "dtype": "|u1",
        "fill_value": 0,
        "order": "C",
        "filters": None,
        "compressor": None,
    }
    return {
        ".zgroup": {"zarr_format": 2},
        ".zattrs": group.get("group", {}),
        "a/.zarray": array,
        "a/.zattrs": {**attributes, "_ARRAY_DIMENSIONS": ["y", "x"]},
    }


def grid_mapping(declares=None, **attributes):
    """A CF grid mapping beside the array."""
    documents = v3({"grid_mapping": "crs", **(declares or {})})
    scalar = {**documents["a/zarr.json"], "shape": [], "dimension_names": [], "attributes": attributes}
    scalar["chunk_grid"] = {"name": "regular", "configuration": {"chunk_shape": []}}
    return {**documents, "crs/zarr.json": scalar}


def cf_terms(crs):
    """The CRS in CF's own terms, without WKT."""
    return {key: value for key, value in crs.to_cf().items() if key != "crs_wkt"}


NODE = {**GRID, "spatial:registration": "node"}
SHIFTED = (10.0, 0.0, 499_995.0, 0.0, -10.0, 4_000_005.0)
DOCUMENTS = {
    "code": v3({**BOTH, **GRID, **CODE}),
    "code, version 2": v2({**BOTH, **GRID, **CODE}),
    "WKT2": v3({**BOTH, **GRID, **WKT2}),
    "PROJJSON": v3({**BOTH, **GRID, **PROJJSON}),
    "PROJJSON, version 2": v2({**BOTH, **GRID, **PROJJSON}),
    "code and WKT2 that agree": v3({**BOTH, **GRID, **CODE, **WKT2}),
    "code and WKT2 that contradict": v3({**BOTH, **GRID, "proj:code": "EPSG:32634", **WKT2}),
    "code and PROJJSON that contradict": v3({**BOTH, **GRID, "proj:code": "EPSG:32634", **PROJJSON}),
    "EPSG of STAC": v3({**BOTH, **GRID, "proj:epsg": 32633}),
    "by the group": v3({}, group={**BOTH, **GRID, **PROJJSON}),
    "not declared": v3({**GRID, **CODE}),
    "samples at nodes": v3({**BOTH, **NODE, **CODE}),
    "other dimensions": v3({**BOTH, **GRID, "spatial:dimensions": ["lat", "lon"], **CODE}),
    "swapped dimensions": v3({**BOTH, **GRID, "spatial:dimensions": ["x", "y"], **CODE}),
    "box that contradicts": v3({**BOTH, **GRID, **CODE, "spatial:bbox": [0, 0, 100, 100]}),
    "box of the group that contradicts": v3(
        {}, group={**BOTH, **GRID, **CODE, "spatial:shape": [4, 5], "spatial:bbox": [0, 0, 100, 100]}
    ),
    "shape that contradicts": v3({**BOTH, **GRID, **CODE, "spatial:shape": [5, 5]}),
    "unknown code": v3({**BOTH, **GRID, "proj:code": "EPSG:999999", **PROJJSON}),
    "broken WKT2": v3({**BOTH, **GRID, **CODE, "proj:wkt2": "PROJCRS[broken"}),
    "malformed transform": v3({**BOTH, **GRID, **CODE, "spatial:transform": [1, 2, 3]}),
    "grid mapping with WKT": grid_mapping(crs_wkt=UTM33.to_wkt()),
    "grid mapping in CF's terms": grid_mapping(**cf_terms(UTM33)),
    "code and grid mapping that contradict": grid_mapping({**BOTH, **GRID, **CODE}, crs_wkt=UTM34.to_wkt()),
    "code and CF's terms that contradict": grid_mapping({**BOTH, **GRID, **CODE}, **cf_terms(UTM34)),
    "code and grid mapping without CRS": grid_mapping({**BOTH, **GRID, **CODE}, long_name="CRS"),
    "code and broken grid mapping": grid_mapping({**BOTH, **GRID, **CODE}, crs_wkt="PROJCRS[broken"),
    "grid mapping with GeoTransform": grid_mapping(crs_wkt=UTM33.to_wkt(), GeoTransform=GDAL),
    "GeoTransform alone": grid_mapping(GeoTransform=GDAL),
    "GeoTransform that is none": grid_mapping(crs_wkt=UTM33.to_wkt(), GeoTransform="1 2 3"),
    "transform and GeoTransform that contradict": grid_mapping(
        {**BOTH, **GRID, **CODE}, crs_wkt=UTM33.to_wkt(), GeoTransform="0 10 0 0 0 -10"
    ),
}
UTM, OTHER, NOTHING = ("EPSG:32633", TRANSFORM), ("EPSG:32634", TRANSFORM), (None, None)
GOLDEN = {
    "code": UTM,
    "code, version 2": UTM,
    "WKT2": UTM,
    "PROJJSON": UTM,
    "PROJJSON, version 2": UTM,
    "code and WKT2 that agree": UTM,
    "code and WKT2 that contradict": UTM,
    "code and PROJJSON that contradict": OTHER,
    "EPSG of STAC": UTM,
    "by the group": UTM,
    "not declared": NOTHING,
    "samples at nodes": ("EPSG:32633", SHIFTED),
    "other dimensions": ("EPSG:32633", None),
    "swapped dimensions": ("EPSG:32633", (0.0, 10.0, 500_000.0, -10.0, 0.0, 4_000_000.0)),
    "box that contradicts": UTM,
    "box of the group that contradicts": UTM,
    "shape that contradicts": UTM,
    "unknown code": UTM,
    "broken WKT2": UTM,
    "malformed transform": ("EPSG:32633", None),
    "grid mapping with WKT": ("EPSG:32633", None),
    "grid mapping in CF's terms": ("EPSG:32633", None),
    "code and grid mapping that contradict": UTM,
    "code and CF's terms that contradict": UTM,
    "code and grid mapping without CRS": UTM,
    "code and broken grid mapping": UTM,
    "grid mapping with GeoTransform": UTM,
    "GeoTransform alone": (None, TRANSFORM),
    "GeoTransform that is none": ("EPSG:32633", None),
    "transform and GeoTransform that contradict": UTM,
}
CONFLICT = r"disagree: EPSG:3263\d and EPSG:3263\d"
WARNINGS = {
    "code and WKT2 that contradict": CONFLICT,
    "code and PROJJSON that contradict": CONFLICT,
    "not declared": r"spatial attributes without declaration .* they are ignored \(add the convention",
    "other dimensions": "are not two of the array's dimensions",
    "swapped dimensions": "looks swapped",
    "box that contradicts": "is not what the transform gives",
    "box of the group that contradicts": "is not what the transform gives",
    "shape that contradicts": "spatial:shape .* is not the array's",
    "unknown code": "EPSG:999999",
    "broken WKT2": "proj:wkt2",
    "malformed transform": "a transform is six finite numbers",
    "EPSG of STAC": "proj:epsg",
    "code and grid mapping that contradict": "/crs has another CRS than /a declares; EPSG:32633 is used",
    "code and CF's terms that contradict": "/crs has another CRS than /a declares; EPSG:32633 is used",
    "code and broken grid mapping": "grid_mapping: /crs: .*PROJCRS.broken",
    "GeoTransform that is none": "the GeoTransform of /crs, '1 2 3', is no transform",
    "transform and GeoTransform that contradict": "the GeoTransform of /crs is not the declared spatial:transform",
}


def answer(crs, transform):
    return (None if crs is None else describe_crs(crs).code or crs, transform)


def of_index(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        index = periplus.open(path)
    with closing(index):
        place = index.table.catalog.arrays["a"].georeference
    return NOTHING if place is None else answer(place.crs, place.transform)


def references(documents, folder):
    path = folder / "refs.json"
    path.write_text(json.dumps({"version": 1, "refs": {key: json.dumps(one) for key, one in documents.items()}}))
    return path


def repository_of(documents, folder):
    path = folder / "a.icechunk"
    session = icechunk.Repository.create(icechunk.local_filesystem_storage(str(path))).writable_session("main")
    root = zarr.create_group(session.store, attributes=documents["zarr.json"]["attributes"])
    for key, array in documents.items():
        if array["node_type"] == "array":
            names, attributes = array["dimension_names"], array["attributes"]
            shape, name = tuple(array["shape"]), key.partition("/")[0]
            root.create_array(name, shape=shape, dtype="u1", dimension_names=names, attributes=attributes)
    session.commit("one")
    return path


def by_kerchunk(documents, folder):
    return of_index(references(documents, folder))


def stored(documents, folder):
    for key, document in documents.items():
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document))
    return str(folder)


def by_xgroup(documents, folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset = xr.open_dataset(stored(documents, folder / "store.zarr"), engine="xgroup")
    name = dataset["a"].attrs.get("grid_mapping", dataset["a"].encoding.get("grid_mapping"))
    if name is None:
        return NOTHING
    attributes = dataset[name].attrs
    cf = "crs_wkt" not in attributes and "grid_mapping_name" in attributes
    crs = CRS.from_cf(attributes).to_wkt() if cf else attributes.get("crs_wkt")
    numbers = [float(word) for word in attributes.get("GeoTransform", "").split()]
    if len(numbers) != 6:
        return answer(crs, None)
    c, a, b, f, d, e = numbers
    if {"x", "y"} <= set(dataset.xindexes):
        assert (dataset.x[0], dataset.y[0]) == (c + a / 2, f + e / 2)
        assert (dataset.x[1] - dataset.x[0], dataset.y[1] - dataset.y[0]) == (a, e)
    else:
        assert "xc" in dataset.coords
    return answer(crs, (a, b, c, d, e, f))


def by_validation(documents, folder):
    with closing(Fetch()) as fetch:
        nodes, _ = read_documents(stored(documents, folder / "store.zarr"), fetch).nodes()
    meaning = Reader(lookup=nodes.get).array(nodes["/a"])
    crs, grid = meaning.crs, meaning.grid
    return answer(None if crs is None else crs.text, None if grid is None else grid.corner)


@pytest.mark.parametrize("reader", [by_kerchunk, by_xgroup, by_validation])
@pytest.mark.parametrize("name", DOCUMENTS)
def test_all_readers_find_the_same_crs_and_transform(name, reader, tmp_path):
    assert reader(DOCUMENTS[name], tmp_path) == GOLDEN[name]


@pytest.mark.parametrize("name", WARNINGS)
def test_contradictions_and_what_is_ignored_are_reported(name, tmp_path):
    path = references(DOCUMENTS[name], tmp_path)
    repository = repository_of(DOCUMENTS[name], tmp_path)
    store = stored(DOCUMENTS[name], tmp_path / "store.zarr")
    for open_it in (
        lambda: periplus.open(path),
        lambda: periplus.open(repository),
        lambda: xr.open_dataset(path, engine="xgroup"),
        lambda: xr.open_dataset(store, engine="xgroup"),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            open_it().close()
        assert any(re.search(WARNINGS[name], str(one.message)) for one in caught)
    assert any(re.search(WARNINGS[name], str(one)) for one in periplus.validate(store).findings)


def test_levels_that_are_not_declared_are_reported(tmp_path):
    documents = v3({}, group={"multiscales": {"layout": [{"asset": "a"}]}})
    path = tmp_path / "refs.json"
    path.write_text(json.dumps({"version": 1, "refs": {key: json.dumps(one) for key, one in documents.items()}}))
    with pytest.warns(UserWarning, match="multiscales attributes without declaration"):
        periplus.open(path).close()


@pytest.mark.parametrize("name", ["PROJJSON", "code and WKT2 that contradict", "not declared", "swapped dimensions"])
def test_icechunk_answers_as_kerchunk_does(name, tmp_path):
    assert of_index(repository_of(DOCUMENTS[name], tmp_path)) == GOLDEN[name]


def changed(documents, key, **members):
    """The documents, one of them with other members."""
    return {**documents, key: {**documents[key], **members}}


def beside(documents, key="b/zarr.json", **members):
    """The documents with a second array."""
    return changed({**documents, key: documents["a/zarr.json"]}, key, **members)


ODD = {
    "unnamed": (changed(v3({}), "a/zarr.json", dimension_names=None), {"a": (None, None)}),
    "one is unnamed": (changed(v3({}), "a/zarr.json", dimension_names=["y", None]), {"a": ("y", None)}),
    "too few names": (changed(v3({}), "a/zarr.json", dimension_names=["y"]), {"a": (None, None)}),
    "too many names": (changed(v3({}), "a/zarr.json", dimension_names=["z", "y", "x"]), {"a": (None, None)}),
    "version 2": (v2({}), {"a": ("y", "x")}),
    "version 2, too few names": (changed(v2({}), "a/.zattrs", _ARRAY_DIMENSIONS=["y"]), {"a": (None, None)}),
    "unknown codec": (beside(v3({}), codecs=[{"name": "bytes"}, {"name": "none.such"}]), {"a": ("y", "x")}),
    "unknown type": (beside(v3({}), data_type="none.such"), {"a": ("y", "x")}),
    "no shape": (beside(v3({}), shape="none"), {"a": ("y", "x")}),
}
"""Documents, and the dimensions of the arrays that can be read."""


def names_of_index(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        index = periplus.open(path, skip_unsupported=True)
    with closing(index):
        return {name: (array.shape, array.dtype.name) for name, array in index.table.catalog.arrays.items()}


@pytest.mark.parametrize("consolidated", [True, False])
@pytest.mark.parametrize("name", ODD)
def test_odd_documents_are_read_alike_and_do_not_close_the_store(name, consolidated, tmp_path):
    documents, dims = ODD[name]
    readable = dict.fromkeys(dims, ((4, 5), "uint8"))
    (tmp_path / "refs.json").write_text(
        json.dumps({"version": 1, "refs": {key: json.dumps(one) for key, one in documents.items()}})
    )
    assert names_of_index(tmp_path / "refs.json") == readable
    if consolidated and "zarr.json" in documents:
        inside = {key.rpartition("/")[0]: one for key, one in documents.items() if "/" in key}
        documents = changed(documents, "zarr.json", consolidated_metadata={"kind": "inline", "metadata": inside})
    elif consolidated:
        documents = {**documents, ".zmetadata": {"zarr_consolidated_format": 1, "metadata": documents}}
    path = stored(documents, tmp_path / "store.zarr")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dataset = xr.open_dataset(path, engine="xgroup", mask_and_scale=False)
    assert {array: (one.shape, one.dtype.name) for array, one in dataset.data_vars.items()} == readable
    for array, named in dims.items():
        assert dataset[array].dims == tuple(dim or f"{array}_dim_{n}" for n, dim in enumerate(named))
    assert ("b/zarr.json" in documents) == any(re.search(r"/b\b.*cannot be read", str(one.message)) for one in caught)
    assert name.endswith("names") == any("names for 2 dimensions" in str(one.message) for one in caught)
    with closing(Fetch()) as fetch:
        nodes, findings = read_documents(path, fetch).nodes()
    assert {array: (nodes[f"/{array}"].shape, nodes[f"/{array}"].dtype) for array in dims} == readable
    assert {array: tuple(nodes[f"/{array}"].sizes) for array in dims} == {
        array: tuple(filter(None, named)) for array, named in dims.items()
    }
    assert [one.path for one in findings] == (["/b"] if name == "no shape" else [])


@pytest.mark.parametrize("names", [None, ("y", None)])
def test_icechunk_reads_unnamed_dimensions_as_xgroup_does(names, tmp_path):
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path / "a.icechunk")))
    session = repository.writable_session("main")
    zarr.create_group(session.store).create_array("a", shape=(4, 5), dtype="u1", dimension_names=names)
    session.commit("one")
    assert names_of_index(tmp_path / "a.icechunk") == {"a": ((4, 5), "uint8")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset = xr.open_dataset(repository.readonly_session("main").store, engine="xgroup")
    assert dataset.a.dims == tuple(dim or f"a_dim_{n}" for n, dim in enumerate(names or (None, None)))


@pytest.mark.filterwarnings("ignore:.*looks swapped")
@pytest.mark.parametrize(
    ("dims", "order"),
    [
        (("y", "x"), ("y", "x")),
        (("y", "x"), ("x", "y")),
        (("x", "y"), ("x", "y")),
        (("x", "y"), ("y", "x")),
        (("lat", "lon"), ("lon", "lat")),
        (("lon", "lat"), ("lat", "lon")),
    ],
)
def test_coordinates_are_the_same_by_every_route(dims, order, tmp_path):
    documents = v3({**BOTH, **GRID, "spatial:dimensions": list(order), **CODE}, dims)
    expected = xr.open_dataset(stored(documents, tmp_path / "store.zarr"), engine="xgroup").coords
    size = dict(zip(dims, (4, 5), strict=True))
    index = periplus.open(references(documents, tmp_path))
    # Rows are along the first name of spatial:dimensions, and columns along the second.
    right, low = 500_000 + 10 * size[order[1]], 4_000_000 - 10 * size[order[0]]
    assert index["a"].bbox == (500_000, low, right, 4_000_000)
    index.close()
    routes = [(tmp_path / "refs.json", one) for one in ("xgroup", "periplus")]
    for path, engine in [*routes, (repository_of(documents, tmp_path), "periplus")]:
        found = xr.open_dataset(path, engine=engine).coords
        assert set(found) == set(expected)
        for name in set(expected) - {"spatial_ref"}:
            assert found[name].dims == expected[name].dims
            assert found[name].values.tolist() == expected[name].values.tolist()


def test_a_grid_over_dimensions_that_an_index_does_not_use_is_omitted_with_a_warning(tmp_path):
    documents = v3({**BOTH, **GRID, "spatial:dimensions": ["lat", "lon"], **CODE}, ("lat", "lon", "band"))
    array = documents["a/zarr.json"]
    array["shape"] = array["chunk_grid"]["configuration"]["chunk_shape"] = [4, 5, 2]
    with (
        pytest.warns(UserWarning, match="the grid is over"),
        closing(periplus.open(references(documents, tmp_path))) as one,
    ):
        assert (one["a"].georeference.crs, one["a"].georeference.transform) == ("EPSG:32633", None)


def test_labels_beside_a_rotated_grid_are_kept(tmp_path):
    rotated = {"spatial:transform": [8.0, -3.0, 500_000.0, -3.0, -8.0, 4_000_000.0]}
    documents = v3({**BOTH, **GRID, **rotated, **CODE})
    labels = {**documents["a/zarr.json"], "shape": [5], "dimension_names": ["x"], "attributes": {}}
    labels["chunk_grid"] = {"name": "regular", "configuration": {"chunk_shape": [5]}}
    path = references({**documents, "x/zarr.json": labels}, tmp_path)
    document = json.loads(path.read_text())
    document["refs"]["x/c/0"] = "\x01\x02\x03\x04\x05"
    path.write_text(json.dumps(document))
    with closing(periplus.open(path)) as index:
        assert index.table.catalog.coordinates["x"].values.tolist() == [1, 2, 3, 4, 5]


@pytest.mark.filterwarnings("ignore:.*looks swapped")
@pytest.mark.parametrize("labels", [True, False])
@pytest.mark.parametrize("bbox", [None, (500_010, 3_999_970, 500_030, 3_999_990)])
def test_a_grid_with_swapped_dimensions_stays_in_place_when_it_is_written(labels, bbox, tmp_path):
    grid = {**GRID, "spatial:dimensions": ["x", "y"], "spatial:shape": [5, 4]}
    store = stored(v3({**BOTH, **grid, **CODE}), tmp_path / "store.zarr")
    dataset = xr.open_dataset(store, engine="xgroup", **({} if bbox is None else {"bbox": bbox}))
    bare = dataset if labels else dataset.drop_vars(["xc", "yc"])
    periplus.write_conventions(bare).to_zarr(tmp_path / "written.zarr", zarr_format=3, consolidated=False)
    written = xr.open_dataset(tmp_path / "written.zarr", engine="xgroup")
    assert written["a"].shape == ((4, 5) if bbox is None else (2, 2))
    for name in ("xc", "yc"):
        assert written[name].values.tolist() == dataset[name].values.tolist()


@pytest.mark.filterwarnings("ignore:.*looks swapped", "ignore:.*were renamed")
def test_attributes_of_renamed_dimensions_describe_the_same_grid(tmp_path):
    documents = v3({**BOTH, **GRID, "spatial:dimensions": ["x", "y"], "spatial:shape": [5, 4], **CODE})
    array = documents["a/zarr.json"]
    other = {**array, "shape": [2, 3], "attributes": {**array["attributes"], "spatial:shape": [3, 2]}}
    other["chunk_grid"] = {"name": "regular", "configuration": {"chunk_shape": [2, 3]}}
    dataset = xr.open_dataset(stored({**documents, "b/zarr.json": other}, tmp_path), engine="xgroup")
    (renamed,) = (one for one in dataset.data_vars.values() if one.dims != ("y", "x"))
    assert renamed.attrs["spatial:dimensions"] == list(renamed.dims)
    assert renamed.attrs["spatial:transform"] == [0.0, 10.0, 500_000.0, -10.0, 0.0, 4_000_000.0]
    assert renamed.attrs["spatial:shape"] == list(renamed.shape)


def with_labels(folder, attributes, *, off, inline, names=("y", "x"), mapping=None):
    """A store whose labels are off by some metres, and references to it."""
    root = zarr.create_group(folder / "labels.zarr")
    root.create_array("a", shape=(4, 5), dtype="u1", dimension_names=names, attributes=attributes, compressors=None)
    if mapping is not None:
        root.create_array("crs", shape=(), dtype="u1", attributes=mapping)
    right = (3_999_995 - 10.0 * np.arange(4), 500_005 + 10.0 * np.arange(5))
    for name, labels in zip(names, right, strict=True):
        one = root.create_array(name, shape=labels.shape, dtype="f8", dimension_names=[name], compressors=None)
        one[:] = labels + off
    refs = {}
    for path in (folder / "labels.zarr").rglob("*"):
        key = path.relative_to(folder / "labels.zarr").as_posix()
        if path.name == "zarr.json":
            refs[key] = path.read_text()
        elif path.is_file():
            data = base64.b64encode(path.read_bytes()).decode()
            refs[key] = f"base64:{data}" if inline else [str(path)]
    (folder / "labels.json").write_text(json.dumps({"version": 1, "refs": refs}))
    return str(folder / "labels.zarr"), str(folder / "labels.json")


def labels_by_every_route(folder, store, refs, name):
    """Labels of one axis by name of the route."""
    with closing(periplus.open(refs)) as index:
        index.write(folder / "flat.parquet")
        index.write(folder / "one.icechunk")
        read = index.read(array="a")
        exit_ = xr.open_dataset(index.store(), engine="zarr", consolidated=False)[name].values.tolist()
    found = {"read": read.coordinates[name].tolist() if name in read.coordinates else None, "store()": exit_}
    paths = {"Zarr": store, "kerchunk": refs, "flat": folder / "flat.parquet", "Icechunk": folder / "one.icechunk"}
    for form, path in paths.items():
        for engine in ("xgroup",) if form == "Zarr" else ("xgroup", "periplus"):
            for coords in ("auto", "memory"):
                with xr.open_dataset(path, engine=engine, coords=coords) as dataset:
                    found[form, engine, coords] = dataset[name].values.tolist()
    return found


@pytest.mark.filterwarnings("ignore:.*the stored labels of")
@pytest.mark.parametrize("names", [("y", "x"), ("lat", "lon")])
@pytest.mark.parametrize("inline", [True, False])
def test_a_declared_transform_gives_the_labels_by_every_route(inline, names, tmp_path):
    attributes = {**BOTH, **GRID, "spatial:dimensions": list(names), **CODE}
    store, refs = with_labels(tmp_path, attributes, off=1000, inline=inline, names=names)
    found = labels_by_every_route(tmp_path, store, refs, names[1])
    right = [500_005.0, 500_015.0, 500_025.0, 500_035.0, 500_045.0]
    assert found == dict.fromkeys(found, right)


def warned(open_it):
    """The warnings of opening something, as one text."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        open_it().close()
    return "\n".join(str(one.message) for one in caught)


def test_stored_labels_that_contradict_the_transform_are_reported(tmp_path):
    store, refs = with_labels(tmp_path, {**BOTH, **GRID, **CODE}, off=1000, inline=True)
    said = "the stored labels of x are not those of the transform; those of the transform are used"
    assert said in warned(lambda: xr.open_dataset(store, engine="xgroup"))
    assert said in warned(lambda: periplus.open(refs))
    deep = [one for one in periplus.validate(store, deep=True).findings if one.code == "spatial.labels-differ"]
    assert {(one.path, one.attribute) for one in deep} == {("/a", "spatial:transform")}
    assert len(deep) == 2


@pytest.mark.parametrize("inline", [True, False])
def test_stored_labels_that_agree_are_not_reported(inline, tmp_path):
    store, refs = with_labels(tmp_path, {**BOTH, **GRID, **CODE}, off=0, inline=inline)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = labels_by_every_route(tmp_path, store, refs, "x")
    right = [500_005.0, 500_015.0, 500_025.0, 500_035.0, 500_045.0]
    assert found == dict.fromkeys(found, right)
    assert "spatial.labels-differ" not in {one.code for one in periplus.validate(store, deep=True).findings}


@pytest.mark.filterwarnings("ignore:.*the stored labels of", "ignore:no principal convention")
@pytest.mark.parametrize("inline", [True, False])
def test_stored_labels_come_before_a_geotransform_that_is_not_declared(inline, tmp_path):
    mapping = {"crs_wkt": UTM33.to_wkt(), "GeoTransform": GDAL}
    store, refs = with_labels(tmp_path, {"grid_mapping": "crs"}, off=1000, inline=inline, mapping=mapping)
    found = labels_by_every_route(tmp_path, store, refs, "x")
    right = [501_005.0, 501_015.0, 501_025.0, 501_035.0, 501_045.0]
    assert found.pop("read") in (None, right)
    assert found == dict.fromkeys(found, right)
    with closing(periplus.open(refs)) as index:
        assert (index["a"].georeference.crs is None, index["a"].georeference.transform) == (False, None)
    fault = "are not those of" if inline else "cannot be compared with"
    assert f"{fault} the transform; the transform is ignored" in warned(lambda: periplus.open(refs))
    said = "are not those of the transform; the stored ones are used"
    assert said in warned(lambda: xr.open_dataset(store, engine="xgroup"))


def test_a_geotransform_that_the_stored_labels_confirm_is_used(tmp_path):
    mapping = {"crs_wkt": UTM33.to_wkt(), "GeoTransform": GDAL}
    store, refs = with_labels(tmp_path, {"grid_mapping": "crs"}, off=0, inline=True, mapping=mapping)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with closing(periplus.open(refs)) as index:
            assert index["a"].georeference.transform == TRANSFORM
        with xr.open_dataset(store, engine="xgroup", bbox=(500_000, 3_999_980, 500_020, 4_000_000)) as dataset:
            assert dict(dataset.sizes) == {"y": 2, "x": 2}
