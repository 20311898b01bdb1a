"""The footer document: it comes back as it went in, and every unsound field of it is refused by name."""

from __future__ import annotations

import copy
import json
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from periplus.errors import FormatError, LimitError
from periplus.limits import Limits
from periplus.model import Array, Catalog, Coordinate, Encoding, Georeference, GroundControlPoint
from periplus.parse.zarr.dtypes import DTYPES
from periplus.table.document.document import VERSION, IndexDocument, document_for, dump, load
from periplus.testing.indexes import indexes, stacked

LIMITS = Limits()


def again(catalog: Catalog) -> Catalog:
    text = dump(document_for(catalog))
    assert "NaN," not in text.replace('"NaN"', "")
    return load(text, limits=LIMITS).catalog


@settings(max_examples=settings.default.max_examples // 2)
@given(indexes())
def test_a_catalog_comes_back(index):
    catalog, _, _ = index
    back = again(catalog)
    assert list(back.arrays) == list(catalog.arrays)
    for name, array in catalog.arrays.items():
        np.testing.assert_equal(back.arrays[name].attributes, dict(array.attributes))
        np.testing.assert_equal(back.arrays[name].fill, array.fill)


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_and_byte_order_comes_back_native(name):
    for dtype in (np.dtype(name), np.dtype(name).newbyteorder(">")):
        array = Array(name="a", dims=("x",), shape=(3,), chunks=(2,), dtype=dtype)
        assert again(Catalog(arrays={"a": array})).arrays["a"].dtype == np.dtype(name)


@pytest.mark.parametrize("fill", [np.float32("nan"), math.inf, -math.inf, 1.5, np.int16(3), None])
def test_fills_that_json_lacks_are_strings(fill):
    array = Array(name="a", dims=("x",), shape=(3,), chunks=(2,), dtype=np.dtype("f4"), fill=fill)
    np.testing.assert_equal(again(Catalog(arrays={"a": array})).arrays["a"].fill, fill)


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        ("float32", 1e300),
        ("float16", -1e6),
        ("float64", 10**400),
        ("complex64", [0, 1e39]),
        ("complex128", [10**400, 0]),
    ],
)
def test_fills_that_the_dtype_cannot_hold_are_refused(dtype, fill):
    array = Array(name="a", dims=("x",), shape=(3,), chunks=(2,), dtype=np.dtype(dtype))
    document = json.loads(dump(document_for(Catalog(arrays={"a": array}))))
    document["arrays"]["a"]["fill"] = fill
    with pytest.raises(FormatError, match=f"too large for {dtype}"):
        load(document, limits=Limits())
    document["arrays"]["a"]["fill"] = 3.4028235e38 if dtype == "float32" else 1.0  # rounded up in its last digit
    assert np.isfinite(np.array(load(document, limits=Limits()).catalog.arrays["a"].fill, dtype))


def test_coordinates_that_the_dtype_cannot_hold_are_refused():
    for facts in ({"values": [1, 1e39]}, {"start": 0, "step": 2e38, "size": 3}):
        document = {"version": 3, "arrays": {}, "coordinates": {"x": {"dtype": "float32", **facts}}}
        with pytest.raises(FormatError, match=r"too large|exceed the range"):
            load(document, limits=Limits())


def test_georeference_comes_back():
    place = Georeference(
        crs='PROJCS["x",\n UNIT["metre",1]]',
        transform=(1.0, 0.25, 3.0, 0.1, -2.0, 7.5),
        registration="point",
        gcps=(GroundControlPoint(column=1, row=2, x=3.5, y=4.5, z=5.0),),
        rpc={"LINE_OFF": 3.5, "LINE_NUM_COEFF": [1.0, 2.0]},
    )
    array = Array(name="a", dims=("y", "x"), shape=(3, 3), chunks=(2, 2), dtype=np.dtype("u1"), georeference=place)
    assert again(Catalog(arrays={"a": array})).arrays["a"].georeference == place
    bare = array.renamed("a", georeference=None)
    assert again(Catalog(arrays={"a": bare})).arrays["a"].georeference is None


values = st.one_of(
    hnp.arrays(hnp.integer_dtypes(endianness="="), hnp.array_shapes(max_dims=2, min_side=0, max_side=6)),
    hnp.arrays(np.float64, hnp.array_shapes(max_dims=2, max_side=6)),
    hnp.arrays(np.float32, st.integers(0, 6), elements=st.floats(width=32)),
    hnp.arrays(np.dtype("M8[us]"), st.integers(0, 6)),
    hnp.arrays(np.dtype("m8[ns]"), st.integers(0, 6)),
    hnp.arrays(np.bool_, st.integers(0, 6)),
    st.lists(st.text("abcü ", max_size=4), min_size=1).map(lambda words: np.array(words, str)),
    st.tuples(st.integers(-(10**15), 10**15), st.integers(-(10**9), 10**9), st.integers(0, 50)).map(
        lambda r: (np.arange(r[2]) * r[1] + r[0]).astype("M8[us]")
    ),
    st.tuples(st.floats(-1e6, 1e6), st.floats(-1e3, 1e3), st.integers(0, 50)).map(
        lambda r: r[0] + np.arange(r[2]) * r[1]
    ),
)


@settings(deadline=None)
@given(values)
@example(np.array([-(2**31), 0, -(2**31)], np.int32))  # regular, if integers wrap around
def test_coordinates_come_back_exactly(array):
    dims = tuple("ab"[: array.ndim])
    coordinate = Coordinate(name="a", dims=dims, values=array, attributes={"units": "m"})
    back = again(Catalog(arrays={}, coordinates={"a": coordinate})).coordinates["a"]
    assert back.dims == dims
    assert back.attributes == {"units": "m"}
    if array.dtype.kind == "m" and array.size == 0:
        return
    np.testing.assert_array_equal(back.values, array)
    assert back.values.dtype.kind == array.dtype.kind


def test_a_regular_coordinate_is_three_numbers():
    catalog, _, _ = stacked(steps=5000)
    said = json.loads(dump(document_for(catalog)))["coordinates"]["time"]
    assert said["dtype"] == "datetime64[us]"
    assert (said["step"], said["size"]) == (86_400_000_000, 5000)
    assert "values" not in said
    x = Coordinate(name="x", dims=("x",), values=np.linspace(0.005, 99.995, 10_000))
    said = json.loads(dump(document_for(Catalog(arrays={}, coordinates={"x": x}))))["coordinates"]["x"]
    np.testing.assert_array_equal(again(Catalog(arrays={}, coordinates={"x": x})).coordinates["x"].values, x.values)


def test_numbers_json_lacks_survive_inside_attributes_and_codecs():
    free = {"a": math.nan, "b": [math.inf, {"c": -math.inf}], "d": "NaN", "e": np.float32(2), "f": np.arange(3)}
    pipeline = ({"name": "periplus.unpack", "configuration": {"nodata": math.nan}},)
    array = Array(
        name="a", dims=("x",), shape=(3,), chunks=(2,), dtype=np.dtype("f4"), attributes=free,
        encodings=(Encoding(pipeline),),
    )  # fmt: skip
    back = again(Catalog(arrays={"a": array}, arrangement={"x": math.nan})).arrays["a"]
    np.testing.assert_equal(back.attributes, {**free, "e": 2.0, "f": [0, 1, 2]})
    assert math.isnan(back.encodings[0].codecs[0]["configuration"]["nodata"])


@pytest.mark.parametrize("value", [b"bytes", {1: 2}, object(), {1, 2}])
def test_what_json_cannot_say_is_refused_on_writing(value):
    array = Array(name="a", dims=("x",), shape=(3,), chunks=(2,), dtype=np.dtype("f4"), attributes={"k": value})
    with pytest.raises(FormatError, match="JSON"):
        dump(document_for(Catalog(arrays={"a": array})))


def sound() -> dict:
    return json.loads(dump(document_for(stacked()[0], parts={"1/data": 3})))


BAD = {
    "no version": ({"version": None}, "version must be an integer"),
    "version as text": ({"version": "1"}, "version must be an integer"),
    "version true": ({"version": True}, "version must be an integer"),
    "version zero": ({"version": 0}, "version is 0"),
    "newer version": ({"version": 7}, f"version 7; this periplus reads versions up to {VERSION}"),
    "no arrays": ({"arrays": None}, "arrays must be an object"),
    "arrays as list": ({"arrays": []}, "arrays must be an object"),
    "an array that is no object": ({"arrays/0~data": 3}, "'0/data' must be an object"),
    "shape as text": ({"arrays/0~data/shape": "5"}, "shape must be a list"),
    "shape with a float": ({"arrays/0~data/shape": [5, 3.0, 246, 364]}, "shape must be an integer"),
    "negative shape": ({"arrays/0~data/shape": [5, -3, 246, 364]}, "shape is -3"),
    "shape over 63 bits": ({"arrays/0~data/shape": [5, 2**64, 246, 364]}, "shape is 18446744073709551616"),
    "too many values": ({"arrays/0~data/shape": [2**62, 3, 246, 364]}, "more than 64 bits"),
    "rank differs": ({"arrays/0~data/chunks": [1, 3, 64]}, "chunks has 3 items where 4"),
    "chunk of zero": ({"arrays/0~data/chunks": [1, 3, 0, 64]}, "chunks is 0"),
    "chunk too large": ({"arrays/0~data/chunks": [1, 3, 2**20, 2**20]}, "bytes of one chunk"),
    "too many chunks": ({"arrays/0~data/shape": [2**40, 3, 1, 1], "coordinates": {}}, "chunks along a dimension"),
    "too many dims": ({"arrays/0~data/shape": [1] * 9}, "rank is 9"),
    "dims not texts": ({"arrays/0~data/dims": [1, "bands", "y", "x"]}, "must be a string"),
    "dims twice": ({"arrays/0~data/dims": ["y", "bands", "y", "x"]}, "named twice"),
    "unknown dtype": ({"arrays/0~data/dtype": "object"}, "unknown dtype"),
    "dtype with a payload": ({"arrays/0~data/dtype": "V9223372036854775807"}, "unknown dtype"),
    "fill of the wrong kind": ({"arrays/0~data/fill": "zero"}, "fill must be an integer"),
    "fill out of range": ({"arrays/0~data/fill": 65536}, "fill is 65536"),
    "encodings not lists": ({"arrays/0~data/encodings": ["bytes"]}, "encodings must be a list"),
    "codec without a name": ({"arrays/0~data/encodings": [[{"configuration": {}}]]}, "codec name must be a string"),
    "codec with other fields": ({"arrays/0~data/encodings": [[{"name": "a", "run": 1}]]}, "unknown field"),
    "codec configuration as text": ({"arrays/0~data/encodings": [[{"name": "a", "configuration": "x"}]]}, "object"),
    "attributes as list": ({"arrays/0~data/attributes": []}, "must be an object"),
    "level too high": ({"arrays/0~data/level": 256}, "level is 256"),
    "parts of zero": ({"arrays/0~data/parts": 0}, "parts is 0"),
    "parts over 16 bits": ({"arrays/0~data/parts": 65537}, "parts is 65537"),
    "transform too short": ({"arrays/0~data/transform": [1, 2, 3]}, "transform has 3 items"),
    "transform not finite": ({"arrays/0~data/transform": [1, 2, 3, 4, 5, 10**400]}, "finite"),
    "registration": ({"arrays/0~data/registration": "corner"}, "registration must be"),
    "crs as number": ({"arrays/0~data/crs": 4326}, "crs must be a string"),
    "gcps too short": ({"arrays/0~data/gcps": [[1, 2, 3]]}, "gcps has 3 items"),
    "edges of another sum": ({"arrays/0~data/edges": [None, None, [64, 64], None]}, "add up to 128"),
    "edges of zero": ({"arrays/0~data/edges": [None, None, [0, 246], None]}, "edges is 0"),
    "edges and chunk differ": ({"arrays/0~data/edges": [None, None, [200, 46], None]}, "largest edge"),
    "edges of other rank": ({"arrays/0~data/edges": [None]}, "edges has 1 items"),
    "coordinate of other size": ({"coordinates/time/size": 6}, "array '0/data' needs"),
    "coordinate too large": ({"coordinates/time/size": 2**40}, "over the limit"),
    "coordinate overflows": ({"coordinates/time/step": 2**62}, "exceed the range"),
    "coordinate dtype": ({"coordinates/time/dtype": "U9999999999"}, "unknown dtype"),
    "coordinate of other shape": ({"coordinates/t": {"dtype": "int8", "values": [1], "shape": [2]}}, "for the shape"),
    "coordinate of other rank": ({"coordinates/t": {"dtype": "int8", "values": [1], "shape": [1, 1]}}, "rank 2"),
    "coordinate values deep": ({"coordinates/t": {"dtype": "int8", "values": [[1]]}}, "must be an integer"),
    "coordinate values text": ({"coordinates/t": {"dtype": "int8", "values": "1"}}, "must be a list"),
    "coordinate value null": ({"coordinates/t": {"dtype": "int8", "values": [None]}}, "null among"),
    "group attributes": ({"attributes": {"": 3}}, "must be an object"),
    "group name": ({"attributes": {"../x": {}}}, "cannot be a name"),
    "role unknown": ({"columns": {"chunk": {}, "colour": "x"}}, "unknown role"),
    "role as number": ({"columns": {"offset": 3}}, "must be a string"),
    "role empty": ({"columns": {"offset": None}}, "cannot be empty"),
    "two roles": ({"columns": {"offset": "x", "length": "x"}}, "two roles"),
    "part outside": ({"chunks": [{"path": "../x", "rows": 1, "bytes": 100}]}, "cannot be a name"),
    "part absolute": ({"chunks": [{"path": "/etc/x", "rows": 1, "bytes": 100}]}, "cannot be a name"),
    "part rows": ({"chunks": [{"path": "x", "rows": -1, "bytes": 100}]}, "rows is -1"),
    "part bounds": ({"chunks": [{"path": "x", "rows": 1, "bytes": 100, "bounds": {"zz": []}}]}, "unknown array"),
    "part bounds turned": (
        {"chunks": [{"path": "x", "rows": 1, "bytes": 100, "bounds": {"0/data": [[2, 1], *[[0, 1]] * 3]}}]},
        "end before they begin",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_an_unsound_field_is_refused_by_name(case):
    changes, message = BAD[case]
    document = copy.deepcopy(sound())
    for place, value in changes.items():
        *path, last = (key.replace("~", "/") for key in place.split("/"))
        target = document
        for key in path:
            target = target[key]
        target[last] = value
    with pytest.raises((FormatError, LimitError)) as failure:
        load(json.dumps(document), limits=LIMITS)
    assert message in str(failure.value)


@pytest.mark.parametrize(
    "name", ["", "/a", "a/", "a//b", "../a", "a/..", "a\\b", "a\nb", "a\x00b", "\ud800", "a" * 5000]
)
def test_names_that_could_lead_elsewhere_are_refused(name):
    document = sound()
    document["arrays"][name] = document["arrays"].pop("0/data")
    with pytest.raises(FormatError, match=r"name|control"):
        load(json.dumps(document), limits=LIMITS)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", "null", '{"version": NaN}', "\xff", '{"version": 1e999}', "[" * 10**6, "9" * 10**5]
)
def test_text_that_is_no_document_is_refused(text):
    with pytest.raises(FormatError):
        load(text.encode("latin-1"), limits=LIMITS)


@pytest.mark.parametrize("half", ["\\ud800", "\\uDFFF", "x\\udc00\\ud800"])
def test_half_a_character_is_refused_and_two_halves_are_one(half):
    text = '{"version":1,"arrays":{},"attributes":{"":{"title":"%s"}}}'
    with pytest.raises(FormatError, match="half a character"):
        load(text % half, limits=Limits())
    whole = load(text % "\\ud83d\\udef0", limits=Limits())
    assert whole.catalog.attributes[""]["title"] == "\U0001f6f0"


def test_a_huge_document_is_refused_unread():
    with pytest.raises(LimitError):
        load(" " * 100, limits=Limits(header_bytes=50))


def test_columns_differ_even_where_dimensions_differ_only_in_case():
    arrays = {
        name: Array(name=name, dims=dims, shape=(1, 1), chunks=(1, 1), dtype=np.dtype("u1"))
        for name, dims in {"a": ("x", "X"), "b": ("x_chunk", "Y")}.items()
    }
    columns = document_for(Catalog(arrays=arrays)).columns.chunk
    assert len({name.lower() for name in columns.values()}) == len(columns) == 4


def test_the_row_bound_counts_every_grid_and_its_parts():
    document = load(json.dumps(sound()), limits=LIMITS)
    assert isinstance(document, IndexDocument)
    assert document.most_rows == 5 * 4 * 6 + 5 * 2 * 3 * 3


def test_extents_of_coordinates_are_checked_in_their_scope():
    def document(**coordinates):
        one = {"dims": ["t"], "shape": [3], "chunks": [1], "dtype": "uint8"}
        arrays = {"a/x": one, "b/x": {**one, "shape": [2]}}
        return {"version": 3, "arrays": arrays, "coordinates": coordinates}

    three, two = ({"dtype": "int64", "start": 0, "step": 1, "size": size} for size in (3, 2))
    catalog = load(document(**{"a/t": three, "b/t": two}), limits=Limits()).catalog
    assert catalog.coordinates_of(catalog.arrays["b/x"])["t"].values.tolist() == [0, 1]
    assert load(document(**{"t": three, "b/t": two}), limits=Limits()).catalog.coordinates["b/t"].name == "t"
    for wrong in ({"t": three}, {"a/t": two}, {"a/t": three, "b/t": three}, {"t": two, "b/t": two}):
        with pytest.raises(FormatError, match="coordinate 't' has shape"):
            load(document(**wrong), limits=Limits())


def typed(dtype, fill=None, chunks=(1,)):
    array = {"dims": ["t"], "shape": [3], "chunks": list(chunks), "dtype": dtype, "fill": fill}
    return load({"version": 3, "arrays": {"x": array}}, limits=Limits()).catalog.arrays["x"]


@pytest.mark.parametrize(
    ("dtype", "fill", "value"),
    [
        ("S3", "YWI=", b"ab"), ("U3", "äb漢", "äb漢"), ("U1", None, None), ("datetime64[us]", 5, 5),
        ("datetime64[D]", "NaT", -(2**63)), ("timedelta64[ns]", -7, -7), ("S3", "", b""),
    ],
)  # fmt: skip
def test_text_and_times_are_written_and_read(dtype, fill, value):
    array = typed(dtype, fill)
    assert array.fill == value
    again = json.loads(dump(document_for(Catalog(arrays={"x": array}))))["arrays"]["x"]
    assert (again["dtype"], again["fill"]) == (dtype, fill)


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        ("S0", None), ("S", None), ("U01", None), ("S2147483648", None), ("U999999999", None), ("V3", None),
        ("O", None),
        ("datetime64", None), ("datetime64[10s]", None), ("datetime64[generic]", None), ("<M8[s]", None), ("S3", "abc"),
        ("S1", "YWI="), ("S3", 5), ("U2", "abc"), ("U2", "\ud800"), ("U2", 1), ("datetime64[s]", 1.5),
        ("datetime64[s]", "2020"), ("datetime64[s]", 2**63), ("timedelta64[s]", True), (5, None), ("S\u0663", None),
    ],
)  # fmt: skip
def test_types_and_fill_values_that_make_no_sense_are_refused(dtype, fill):
    with pytest.raises(FormatError):
        typed(dtype, fill)


def test_wide_values_count_towards_the_size_of_a_chunk():
    with pytest.raises(LimitError, match="bytes of one chunk"):
        typed("S1000000000", chunks=(3,))
