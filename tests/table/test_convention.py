"""The convention as written down: the schema admits what we write, and every golden index stays readable."""

from __future__ import annotations

import copy
import json
import math
import re
from pathlib import Path

import jsonschema
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from periplus.errors import FormatError, PeriplusError
from periplus.limits import Limits
from periplus.table import open_table, write_table
from periplus.table.document.document import KEY, VERSION, document_for, dump, load
from periplus.table.parquet.files import FILES
from periplus.table.parquet.order import GROUP_ROWS, STEPS
from periplus.testing.indexes import indexes, inline_list, stacked

ROOT = Path(__file__).parent.parent.parent
GOLDEN = Path(__file__).parent / "golden"
SCHEMA = json.loads((ROOT / "docs" / "array_references.schema.json").read_text())
RELEASED = range(1, VERSION + 1)
"""Versions with a golden index."""
PAGE = (ROOT / "docs" / "convention.md").read_text()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def test_the_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["properties"]["version"]["enum"] == list(range(1, VERSION + 1))


@settings(max_examples=settings.default.max_examples // 2)
@given(indexes())
def test_the_schema_admits_every_document_we_write(index):
    VALIDATOR.validate(json.loads(dump(document_for(index[0], parts=dict.fromkeys(index[0].arrays, 3)))))


def test_the_schema_admits_written_indexes_of_every_form(tmp_path, fetch):
    catalog, refs, files = stacked()
    write_table(str(tmp_path / "i.parquet"), catalog, refs.items(), files, fetch=fetch)
    write_table(str(tmp_path / "i"), catalog, refs.items(), files, fetch=fetch)
    golden = [GOLDEN / path for n in RELEASED for path in (f"v{n}.parquet", f"v{n}/files.parquet")]
    for path in ("i.parquet", "i/files.parquet", *golden):
        VALIDATOR.validate(json.loads(pq.read_metadata(tmp_path / path).metadata[KEY]))


def collected():
    """The document of the page's example of a collection."""
    examples = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
    return next(example for example in examples if "families" in example)


def grouped():
    """The same as version 2 has it."""
    groups = {"scene-a": [0, 0, 300000.0, 5200000.0], "scene-b": [0, None, 310240.0, 5200000.0]}
    return collected() | {"version": 2, "groups": groups}


def test_the_examples_are_sound():
    examples = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
    documents = [example for example in examples if "version" in example]
    assert len(documents) == 2
    for document in documents:
        VALIDATOR.validate(document)
    assert list(load(documents[0], limits=Limits()).catalog.coordinates) == ["time"]


def test_the_example_with_groups_is_sound():
    VALIDATOR.validate(grouped())
    catalog = load(json.dumps(grouped()), limits=Limits()).catalog
    assert list(catalog.arrays) == ["scene-a/0/data", "scene-a/1/data", "scene-b/0/data", "scene-b/1/data"]
    assert catalog.arrays["scene-b/1/data"].georeference.transform == (20.0, 0.0, 310240.0, 0.0, -20.0, 5200000.0)
    assert catalog.attributes == {"scene-a": {"AREA_OR_POINT": "Area"}}


def spoilt():
    """Documents with one thing wrong, and where."""
    sound = json.loads(dump(document_for(stacked()[0])))
    yield from changed(grouped(), {
        ("families",): {},
        ("families", 0, "0/data", "like"): -1,
        ("families", 0, "0/data", "shape"): [1.5],
        ("families", 0, "../x"): {"like": 0, "shape": [1, 1, 1]},
        ("prototypes",): [3],
        ("prototypes", 0, "dtype"): "object",
        ("notes",): [3],
        ("groups",): [],
        ("groups", "scene-a"): [0, 0, 1.0],
        ("groups", "scene-a", 0): -1,
        ("groups", "scene-a", 1): "x",
        ("groups", "scene-a", 2): None,
        ("groups", "a//b"): [0, None, 0.0, 0.0],
    })  # fmt: skip
    yield from changed(sound, {
        ("version",): VERSION + 1,
        ("arrays",): [],
        ("arrays", "0/data", "dtype"): "object",
        ("arrays", "0/data", "shape"): [1.5],
        ("arrays", "0/data", "chunks"): [0, 1, 1, 1],
        ("arrays", "0/data", "dims"): ["y", "y"],
        ("arrays", "0/data", "encodings"): [[{"configuration": {}}]],
        ("arrays", "0/data", "transform"): [1, 2],
        ("arrays", "0/data", "registration"): "corner",
        ("arrays", "../x"): sound["arrays"]["0/data"],
        ("arrays", "a//b"): sound["arrays"]["0/data"],
        ("columns", "colour"): "red",
        ("coordinates", "time", "size"): -1,
        ("chunks",): [{"path": "/etc/passwd", "rows": 1, "bytes": 20}],
    })  # fmt: skip


def changed(sound, changes):
    for place, value in changes.items():
        document = copy.deepcopy(sound)
        target = document
        for key in place[:-1]:
            target = target[key]
        target[place[-1]] = value
        yield "/".join(map(str, place)), document


@pytest.mark.parametrize(
    "change",
    [
        {"families": []},
        {"prototypes": []},
        {"notes": []},
        {"groups": {"a": [1, None, 0.0, 0.0]}},
        {"groups": {"a": [0, 9, 0.0, 0.0]}},
        {"arrays": {"scene-a/0/data": {"dims": ["x"], "shape": [1], "chunks": [1], "dtype": "uint8"}}},
    ],
    ids=str,
)
def test_groups_that_lead_nowhere_or_to_one_name_are_refused(change):
    with pytest.raises(FormatError):
        load(json.dumps({**grouped(), **change}), limits=Limits())


def test_groups_within_groups_have_names_of_their_own():
    document = grouped()
    document["families"].append({"b/0/data": document["families"][0]["0/data"]})
    document["groups"] = {"a": [1, None, 0.0, 0.0], "a/b": [0, None, 0.0, 0.0]}
    with pytest.raises(FormatError, match="two arrays are named 'a/b/0/data'"):
        load(json.dumps(document), limits=Limits())
    document["groups"]["a/c"] = document["groups"].pop("a/b")
    assert len(load(json.dumps(document), limits=Limits()).catalog.arrays) == 3


@pytest.mark.parametrize(
    ("place", "document"), list(spoilt()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_the_schema_and_the_reader_refuse_the_same(place, document):
    assert not VALIDATOR.is_valid(document)
    with pytest.raises(PeriplusError):
        load(json.dumps(document), limits=Limits())


@pytest.mark.parametrize("form", ["v1.parquet", "v1"])
def test_the_golden_index_of_version_1_reads_as_it_always_did(form, fetch):
    table = open_table(str(GOLDEN / form), fetch=fetch, allow=["s3://bucket/", "https://example.com/"])
    assert table.rows == 9
    want = json.loads((GOLDEN / "v1.json").read_text())
    for name, columns in want.items():
        refs = table.refs(name)
        for column in ("chunk", "offset", "length", "file"):
            assert getattr(refs, column).tolist() == columns[column], column
        for column in ("part", "encoding"):
            have = getattr(refs, column)
            assert (have.tolist() if have is not None else None) in (columns[column], [0] * len(refs)), column
        have = [None if item is None else item.hex() for item in inline_list(refs)]
        assert have == (columns["data"] or [None] * len(refs))
    assert table.files.path == [str(GOLDEN / "tiles" / "a.tif"), "s3://bucket/b.tif", "https://example.com/c.tif"]
    assert table.files.size.tolist() == [100_000, -1, 5_000_000_000]
    assert table.files.etag == ['"abc"', None, 'W/"x"']
    assert str(table.files.last_modified[0]) == "2021-05-05T01:02:03.000004"
    assert table.files.error[2] == "it was not a TIFF"
    stack, varied = table.catalog.arrays["0/data"], table.catalog.arrays["images/1/0/data"]
    assert (stack.dims, stack.shape, stack.chunks) == (("time", "y", "x"), (3, 100, 130), (1, 64, 64))
    assert math.isnan(stack.fill)
    assert math.isnan(stack.attributes["_FillValue"])
    assert stack.attributes["nested"] == {"a": [1, None, "NaN"]}
    assert math.isnan(stack.encodings[1].codecs[0]["configuration"]["nodata"])
    assert stack.georeference.transform == (10.0, 0.0, 3e5, 0.0, -10.0, 52e5)
    assert stack.georeference.registration == "point"
    assert (varied.edges, varied.level, varied.fill.real) == ((None, (4, 1, 2)), 2, 1)
    assert varied.georeference.gcps[0].z == 4.5
    assert varied.georeference.rpc == {"LINE_OFF": 1.5}
    time = table.catalog.coordinates["time"].values
    assert np.isnat(time[1])
    assert str(time[2]) == "2021-03-01T00:00:00.000000"
    np.testing.assert_array_equal(table.catalog.coordinates["row"].values, np.arange(7) * 0.5 - 1)
    assert table.catalog.attributes == {"": {"title": "golden"}, "images": {"note": "a group"}}


@pytest.mark.parametrize("form", ["v2.parquet", "v2"])
def test_the_golden_index_of_version_2_reads_as_it_always_did(form, fetch):
    table = open_table(str(GOLDEN / form), fetch=fetch, allow=["s3://bucket/", "https://example.com/"])
    want = json.loads((GOLDEN / "v2.json").read_text())
    assert table.rows == sum(len(columns["offset"]) for columns in want.values()) == 66
    for name, columns in want.items():
        refs = table.refs(name)
        for column in ("chunk", "offset", "length", "file"):
            assert getattr(refs, column).tolist() == columns[column], column
    arrays = table.catalog.arrays
    assert len(arrays) == len(list(arrays)) == 129
    assert [*list(arrays)[:2], list(arrays)[-1]] == ["scenes/s00/0/data", "scenes/s00/1/data", "odd/data"]
    last = arrays["scenes/s63/1/data"]
    assert (last.shape, last.level, last.dtype) == ((1, 50, 50), 1, np.dtype("float32"))
    assert last.georeference.transform == (20.0, 0.0, 3e5 + 1000.5 * 63, 0.0, -20.0, 52e5 - 21)
    assert math.isnan(last.fill)
    assert math.isnan(last.encodings[1].codecs[0]["configuration"]["nodata"])
    assert arrays["odd/data"].shape == (7,)
    assert table.document.parts == {"scenes/s05/0/data": 2}
    assert table.catalog.attributes[""] == {"title": "golden"}
    assert "scenes/s00" not in table.catalog.attributes
    assert table.catalog.attributes["scenes/s63"] == {"sensor": "a"}
    assert table.catalog.arrangement["groups"][-1] == "odd"


@pytest.mark.parametrize("form", ["v3.parquet", "v3"])
def test_the_golden_index_of_version_3_reads_as_it_always_did(form, fetch):
    table = open_table(str(GOLDEN / form), fetch=fetch, allow=["s3://bucket/", "https://example.com/"])
    want = json.loads((GOLDEN / "v3.json").read_text())
    assert table.rows == sum(len(columns["offset"]) for columns in want.values()) == 71
    for name, columns in want.items():
        refs = table.refs(name)
        for column in ("chunk", "offset", "length", "file"):
            assert getattr(refs, column).tolist() == columns[column], column
        data = None if refs.inline is None else [item and item.hex() for item in inline_list(refs)]
        assert data == columns["data"]
    catalog = table.catalog
    arrays = catalog.arrays
    assert len(arrays) == len(list(arrays)) == 132
    last = arrays["scenes/s63/1/data"]
    assert (last.shape, last.level, last.dtype) == ((1, 50, 50), 1, np.dtype("float32"))
    assert last.georeference.transform == (20.0, 0.0, 3e5 + 1000.5 * 63, 0.0, -20.0, 52e5 - 21)
    clipped, larger, part = arrays["odd/data"].encodings
    assert (clipped.clipped, larger.extent) == (("row",), (6,))
    assert (part.extent, part.region.begin, part.region.at, part.region.size) == ((4,), (1,), (0,), (2,))
    assert (part.region.transparent, part.region.layer) == (-1, 1)
    assert (arrays["odd/label"].shape, arrays["odd/label"].dtype, arrays["odd/label"].fill) == ((), "<U3", "abc")
    assert (arrays["odd/when"].dtype, arrays["store/code"].dtype) == (np.dtype("M8[s]"), np.dtype("S2"))
    assert arrays["store/code"].fill == b"--"
    assert catalog.coordinates["odd/row"].values.tolist() == [0, 0.5, 1, 1.5, 2, 2.5, 3]
    assert len(catalog.coordinates["row"].values) == 8
    assert catalog.attributes["empty"] == {"note": "no array"}
    assert "scenes/s00" not in catalog.attributes
    assert catalog.attributes["scenes/s63"] == {"sensor": "a"}
    assert table.files.columns["group"][[0, 63, 64, 65]].tolist() == ["scenes/s00", "scenes/s63", "odd", "store"]
    assert table.files.columns["cloud_cover"][-1] == 100
    assert table.files.path[-1] == "s3://bucket/store/c/{row}"
    placements = table.placements
    assert (placements.file.tolist(), placements.origin.tolist(), placements.extent.tolist()) == ([64], [[3]], [[4]])
    assert (placements.descriptions[0].name, placements.order.tolist()) == ("data", [7])


def test_every_version_has_its_golden_index():
    assert sorted(path.stem for path in GOLDEN.glob("*.parquet")) == [f"v{n}" for n in RELEASED]


def test_the_page_names_what_the_code_names():
    for field in SCHEMA["$defs"]["fields"]["properties"]:
        assert f"`{field}`" in PAGE, field
    for name in FILES.names:
        assert f"`{name}`" in PAGE, name
    for name in ("prototypes", "families", "notes", "groups", "like"):
        assert f"`{name}" in PAGE or f"**{name}**" in PAGE, name
    for role in SCHEMA["$defs"]["columns"]["properties"]:
        assert f"`{role}`" in PAGE, role
    assert f"{GROUP_ROWS:,} rows" in PAGE
    assert f"{STEPS} steps" in PAGE
    for dtype in ("bool", "int8", "float16", "complex128"):
        assert dtype in PAGE
