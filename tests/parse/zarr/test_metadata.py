"""Zarr metadata documents of both versions give one description; what is malformed is refused by key."""

import math

import numpy as np
import pytest

from periplus.conventions.node import node_of
from periplus.decode import pipeline as decoders
from periplus.decode.zarr import filters
from periplus.errors import FormatError, LimitError, PeriplusError
from periplus.limits import Limits
from periplus.parse.zarr import GroupMetadata, codecs, nodes_of

V2 = {
    "zarr_format": 2,
    "shape": [4, 6],
    "chunks": [2, 3],
    "dtype": "<f4",
    "fill_value": "NaN",
    "order": "C",
    "filters": None,
    "compressor": None,
}
V3 = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [4, 6],
    "data_type": "float32",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 3]}},
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    "fill_value": "NaN",
    "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    "attributes": {"units": "m"},
    "dimension_names": ["y", "x"],
}
V2_ATTRIBUTES = {"units": "m", "_ARRAY_DIMENSIONS": ["y", "x"]}


def v2(attributes=V2_ATTRIBUTES, **changes):
    return nodes_of({"a/.zarray": {**V2, **changes}, "a/.zattrs": attributes})["a"].parse()


def v3(**changes):
    return nodes_of({"a/zarr.json": {**V3, **changes}})["a"].parse()


def test_both_versions_give_one_description():
    for array in (v2(), v3()):
        assert (array.shape, array.chunks, array.edges, array.dims) == ((4, 6), (2, 3), None, ("y", "x"))
        assert array.dtype == np.dtype("float32")
        assert math.isnan(array.fill_value)
        assert array.codecs == ({"name": "bytes", "configuration": {"endian": "little"}},)
        assert array.attributes["units"] == "m"
        assert not array.storage_transformers
        node = node_of("/a", array)
        assert (node.dims, node.shape, node.dtype) == (("y", "x"), (4, 6), "float32")


def test_the_names_of_codecs_are_those_of_the_decoders():
    assert frozenset(decoders.IMAGES) == codecs.IMAGES
    assert frozenset(filters.NAMES) == codecs.ON_VALUES


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"dtype": ">i2", "fill_value": 0}, [("bytes", {"endian": "big"})]),
        ({"order": "F"}, [("transpose", {"order": [1, 0]}), ("bytes", {"endian": "little"})]),
        (
            {"filters": [{"id": "shuffle"}], "compressor": {"id": "zlib", "level": 3}},
            [
                ("bytes", {"endian": "little"}),
                ("numcodecs.shuffle", {"elementsize": 4}),
                ("numcodecs.zlib", {"level": 3}),
            ],
        ),
        (
            {"dtype": "<f8", "filters": [{"id": "fixedscaleoffset", "scale": 1, "offset": 0, "astype": ">i2"}]},
            [
                ("numcodecs.fixedscaleoffset", {"scale": 1, "offset": 0, "astype": ">i2"}),
                ("bytes", {"endian": "big"}),
            ],
        ),
        (
            {"compressor": {"id": "blosc", "shuffle": -1}},
            [
                ("bytes", {"endian": "little"}),
                ("blosc", {"typesize": 4, "cname": "lz4", "clevel": 5, "shuffle": "shuffle", "blocksize": 0}),
            ],
        ),
        ({"dtype": "|O", "filters": [{"id": "vlen-utf8"}]}, [("vlen-utf8", None)]),
        ({"compressor": {"id": "nobody-knows", "level": 1}},
         [("bytes", {"endian": "little"}), ("numcodecs.nobody-knows", {"level": 1})]),
        ({"compressor": {"id": "imagecodecs_lzw", "x": 1}}, [("bytes", {"endian": "little"}), ("periplus.lzw", None)]),
    ],
)  # fmt: skip
def test_codecs_of_version_2_have_names_of_version_3(changes, expected):
    found = [(codec["name"], codec.get("configuration")) for codec in v2(**changes).codecs]
    assert found == expected


def test_strings_of_variable_length_are_text_in_both_versions():
    old = v2(dtype="|O", filters=[{"id": "vlen-utf8"}], fill_value="")
    new = v3(data_type="string", codecs=[{"name": "vlen-utf8"}], fill_value="")
    for array in (old, new):
        assert array.is_text
        assert array.dtype is None
        assert array.fill_value is None


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (v2().chunk_keys, "1.2"),
        (v2(dimension_separator="/").chunk_keys, "1/2"),
        (v3().chunk_keys, "c/1/2"),
        (v3(chunk_key_encoding={"name": "default", "configuration": {"separator": "."}}).chunk_keys, "c.1.2"),
        (v3(chunk_key_encoding={"name": "v2"}).chunk_keys, "1.2"),
    ],
)
def test_chunk_keys(keys, expected):
    assert keys.key((1, 2)) == expected
    assert keys.key(()) == ("c" if keys.prefix else "0")


@pytest.mark.parametrize(
    ("dtype", "stored", "expected"),
    [
        ("float32", "0x7fc00000", math.nan),
        ("float64", "-Infinity", -math.inf),
        ("int16", "", None),
        ("int16", 3.0, 3),
        ("bool", 1, True),
        ("complex64", [1, "NaN"], complex(1, math.nan)),
        ({"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 1}}, "NaT", -(1 << 63)),
        ({"name": "null_terminated_bytes", "configuration": {"length_bytes": 3}}, "YWI=", b"ab"),
        ({"name": "fixed_length_utf32", "configuration": {"length_bytes": 8}}, "ab", "ab"),
    ],
)
def test_fill_values(dtype, stored, expected):
    assert repr(v3(data_type=dtype, fill_value=stored).fill_value) == repr(expected)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"_ARRAY_DIMENSIONS": ["y", None]}, ("y", None)),
        ({"_NCZARR_ARRAY": {"dimension_references": ["/y", "/g/x"]}}, ("y", "x")),
        ({"_ARRAY_DIMENSIONS": ["y"]}, (None, None)),
        ({"_ARRAY_DIMENSIONS": "yx"}, (None, None)),
        ({}, (None, None)),
    ],
)
def test_names_of_dimensions_of_version_2(attributes, expected):
    assert v2(attributes).dims == expected


def test_a_node_keeps_names_that_are_too_few_for_a_reader_to_report():
    assert node_of("/a", v3(dimension_names=["y"])).dims == ("y",)


def test_a_rectilinear_grid():
    grid = {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [[1, 3], [[2, 2], 4]]}}
    array = v3(chunk_grid=grid)
    assert (array.chunks, array.edges) == ((3, 4), ((1, 3), (2, 2, 4)))
    mixed = {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [2, [6]]}}
    assert v3(chunk_grid=mixed).edges == (None, (6,))


HUGE = 1 << 62


@pytest.mark.parametrize(
    ("build", "changes"),
    [
        (v2, {"zarr_format": 3}),
        (v2, {"shape": None}),
        (v2, {"shape": [4.0, 6]}),
        (v2, {"shape": [-4, 6]}),
        (v2, {"shape": [HUGE, HUGE]}),
        (v2, {"chunks": [2]}),
        (v2, {"chunks": [0, 3]}),
        (v2, {"order": "K"}),
        (v2, {"dtype": "<q9"}),
        (v2, {"dtype": 4}),
        (v2, {"filters": {"id": "zlib"}}),
        (v2, {"filters": [{"name": "zlib"}]}),
        (v2, {"filters": [{"id": "zlib"}, {"id": "delta", "dtype": "<f4"}]}),
        (v2, {"filters": [{"id": "delta", "astype": "O"}]}),
        (v2, {"dtype": ">f4", "filters": [{"id": "imagecodecs_floatpred"}]}),
        (v2, {"compressor": {"id": "blosc", "shuffle": 7}}),
        (v2, {"dimension_separator": "-"}),
        (v2, {"dtype": "<i2", "fill_value": 1 << 20}),
        (v3, {"shape": [1] * 40}),
        (v3, {"data_type": None}),
        (v3, {"fill_value": "0xff"}),
        (v3, {"codecs": []}),
        (v3, {"codecs": [{"id": "bytes"}]}),
        (v3, {"codecs": [{"name": "bytes", "configuration": 1}]}),
        (v3, {"attributes": [1]}),
        (v3, {"dimension_names": ["a\0", "x"]}),
        (v3, {"chunk_key_encoding": {"name": "suffix"}}),
        (v3, {"storage_transformers": [1]}),
        (v3, {"chunk_grid": {"name": "hexagonal", "configuration": {}}}),
        (v3, {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 0]}}}),
        (v3, {"chunk_grid": {"name": "rectilinear", "configuration": {"chunk_shapes": [[4]]}}}),
        (v3, {"chunk_grid": {"name": "rectilinear", "configuration": {"chunk_shapes": [[1, 1], [6]]}}}),
        (v3, {"chunk_grid": {"name": "rectilinear", "configuration": {"chunk_shapes": [[[1, HUGE]], [6]]}}}),
        (v3, {"chunk_grid": {"name": "rectilinear", "configuration": {"chunk_shapes": [[True, 3], [6]]}}}),
    ],
)
def test_malformed_arrays_are_refused_by_key(build, changes):
    with pytest.raises(PeriplusError, match=r"^a/(\.zarray|zarr\.json): ") as caught:
        build(**changes)
    assert isinstance(caught.value, FormatError | LimitError)


def test_consolidated_documents_count_where_a_node_has_none():
    group = {"zarr_format": 2}
    consolidated = {".zgroup": group, "a/.zarray": V2, "b/.zarray": V2}
    found = nodes_of({".zmetadata": {"metadata": consolidated}, "b/.zarray": {**V2, "shape": [2, 3]}})
    assert list(found) == ["", "a", "b"]
    assert isinstance(found[""].parse(), GroupMetadata)
    assert (found["a"].parse().shape, found["b"].parse().shape) == ((4, 6), (2, 3))
    root = {"zarr_format": 3, "node_type": "group", "consolidated_metadata": {"metadata": {"a": V3}}}
    assert nodes_of({"zarr.json": root})["a"].parse().shape == (4, 6)


def test_attributes_of_either_version_are_replaced():
    for node in (nodes_of({"a/.zarray": V2})["a"], nodes_of({"a/zarr.json": V3})["a"]):
        changed = node.with_attributes({"long_name": "height"})
        assert changed.parse().attributes == {"long_name": "height"}
        assert changed.stored.keys() == {node.name, node.attributes_name}


def test_documents_that_are_not_objects_are_refused_or_skipped():
    documents = {".zgroup": {"zarr_format": 2}, "a/.zarray": [1], "../b/.zarray": V2, "c/.zarray": V2, "c/0": "data"}
    with pytest.raises(FormatError, match=r"a/\.zarray: a JSON object is required"):
        nodes_of(documents)
    skipped = {}
    assert list(nodes_of(documents, skip=skipped.__setitem__)) == ["", "c"]
    assert skipped.keys() == {"a/.zarray", "../b/.zarray"}


def test_the_rank_is_limited():
    with pytest.raises(LimitError, match=r"a/\.zarray: the rank is 2, over the limit of 1"):
        nodes_of({"a/.zarray": V2})["a"].parse(Limits(dims=1))
