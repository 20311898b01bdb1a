"""Kerchunk indexes that nobody should believe: refused with our errors, and with the key that is wrong."""

import base64
import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import periplus
from periplus.errors import PeriplusError
from periplus.zarr.fsspec.filesystem import MultiReferenceFileSystem
from periplus.zarr.kerchunk.references import expand

ARRAY = {
    "zarr_format": 2,
    "shape": [4, 4],
    "chunks": [2, 2],
    "dtype": "|u1",
    "fill_value": 0,
    "order": "C",
    "filters": None,
    "compressor": None,
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data.bin").write_bytes(bytes(range(64)))
    return tmp_path


def index(folder, refs=(), array=(), **more):
    """An index of one array `a`, with changes."""
    plain = {".zgroup": {"zarr_format": 2}, "a/.zarray": {**ARRAY, **dict(array)}, "a/0.0": ["data.bin", 0, 4]}
    (folder / "refs.json").write_text(json.dumps({"version": 1, "refs": {**plain, **dict(refs)}, **more}))
    return folder / "refs.json"


@pytest.mark.parametrize(
    "reference", [["data.bin"], ["data.bin", 0, 5], "base64:" + base64.b64encode(bytes(5)).decode()]
)
def test_more_bytes_than_a_plain_chunk_has_are_refused(folder, reference):
    with periplus.open(index(folder, {"a/0.0": reference})) as opened, pytest.raises(PeriplusError, match=r"5|64"):
        opened["a"][:]


def test_what_is_sound_is_read(folder):
    values = periplus.open(index(folder))["a"][:]
    assert values[:2, :2].tolist() == [[0, 1], [2, 3]]
    assert not values[2:].any()


@pytest.mark.parametrize(
    "reference",
    [
        ["data.bin", -1, 4],
        ["data.bin", 0, -4],
        ["data.bin", 2**63 - 1, 2],
        ["data.bin", 2**70, 2],
        ["data.bin", 1.5, 2],
        ["data.bin", True, 2],
        ["data.bin", "0", "4"],
        ["data.bin", 4],
        ["data.bin", []],
        ["data.bin", [[0]]],
        ["data.bin", [[0, 4], [-3, 2]]],
        ["data.bin", [[0, 4, 5]]],
        ["data.bin", 0, 4, 4],
        [],
        [None, 0, 4],
        ["", 0, 4],
        [["data.bin"], 0, 4],
        "base64:???",
        17,
        None,
        True,
    ],
)
def test_references_that_are_none_are_refused_by_key(folder, reference):
    path = index(folder, {"a/0.1": reference})
    with pytest.raises(periplus.FormatError, match=r"a/0\.1: "):
        periplus.open(path)
    with pytest.raises(periplus.FormatError, match=r"a/0\.1: "):
        MultiReferenceFileSystem(str(path))


@pytest.mark.parametrize("key", ["a/2.0", "a/0.0.0", "a/0", "a/x", "a/-1.0", "a/00.1", "a/0,1", "a/9999999999999.0"])
def test_chunks_outside_of_the_grid_are_refused_by_key(folder, key):
    with pytest.raises(periplus.FormatError, match=key.replace(".", r"\.")):
        periplus.open(index(folder, {key: ["data.bin", 0, 4]}))


@pytest.mark.parametrize(
    "codec", ["pickle", "json2", "msgpack2", "vlen-array", "no-such-codec", "os.system", "periplus.pipeline.x"]
)
def test_codecs_that_are_not_known_are_refused_by_key(folder, codec):
    for change in ({"compressor": {"id": codec}}, {"filters": [{"id": codec}]}):
        with pytest.raises(periplus.FormatError, match=rf"a/\.zarray: codec '{codec}' is"):
            periplus.open(index(folder, array=change))
    assert list(periplus.open(index(folder, array={"compressor": {"id": codec}}), skip_unsupported=["a"])) == []
    v3 = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [4],
        "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
        "chunk_key_encoding": {"name": "default"},
        "fill_value": 0,
        "codecs": [{"name": "bytes"}, {"name": codec}],
    }
    (folder / "three.json").write_text(json.dumps({"version": 1, "refs": {"a/zarr.json": v3}}))
    with pytest.raises(periplus.FormatError, match=rf"a/zarr\.json: codec '{codec}' is"):
        periplus.open(folder / "three.json")


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [-4, 4]},
        {"shape": [2**62, 2**62], "chunks": [1, 1]},
        {"shape": [2**40, 4], "chunks": [1, 4]},
        {"shape": "4"},
        {"chunks": [2]},
        {"shape": [2**40] * 2, "chunks": [2**40] * 2},
        {"shape": [1] * 40, "chunks": [1] * 40},
        {"dtype": "|O"},
        {"dtype": "x"},
        {"dtype": [["a", "<i4"]]},
        {"dtype": 4},
        {"order": "Z"},
        {"filters": 3},
        {"compressor": "zlib"},
        {"filters": [{"id": 5}]},
        {"dimension_separator": "-"},
        {"fill_value": "many"},
        {"fill_value": 700},
        {"fill_value": float("inf")},
        {"fill_value": 1e300},
        {"zarr_format": 9},
        {"filters": [{"id": "zlib"}, {"id": "delta", "dtype": "|u1"}]},
        {"filters": [{"id": "fixedscaleoffset", "scale": 1, "offset": 0, "dtype": "<f4", "astype": "object"}]},
    ],
)
def test_arrays_that_are_none_are_refused_by_key(folder, change):
    with pytest.raises(PeriplusError, match=r"a/\.zarray: "):
        periplus.open(index(folder, array=change))


def test_a_fill_value_that_is_no_number_is_none(folder):
    opened = periplus.open(index(folder, array={"fill_value": float("nan")}))
    assert opened["a"][:2, :2].tolist() == [[0, 1], [2, 3]]
    assert opened["a"].array.fill is None


@pytest.mark.parametrize("name", ["../a", "a//b", "a/../b", "b\\c", "a\x00"])
def test_names_that_lead_elsewhere_are_refused(folder, name):
    with pytest.raises(PeriplusError):
        periplus.open(index(folder, {f"{name}/.zarray": ARRAY}))


@pytest.mark.parametrize(
    "text", ["[]", "{", "7", '{"version": 2, "refs": {}}', '{"version": 1, "refs": []}', "{}", "\xff", "[" * 100_000]
)
def test_files_that_are_no_index_are_refused(tmp_path, text):
    (tmp_path / "refs.json").write_bytes(text.encode("latin1"))
    with pytest.raises(periplus.FormatError):
        periplus.open(tmp_path / "refs.json")


@pytest.mark.parametrize("refs", [{"a/0.1": "\ud800"}, {"a/0.1": ["\ud800x", 0, 4]}, {"\udfff/.zgroup": {}}])
def test_half_characters_are_refused(folder, refs):
    path = index(folder, refs)
    for opened in (periplus.open, lambda place: MultiReferenceFileSystem(str(place))):
        with pytest.raises(periplus.FormatError, match=r"lone surrogate|half a character"):
            opened(path)


# --- templates and gen ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "{{base}}{{missing}}",
        "{{f(x=1)}}",
        "{{ base.__class__ }}",
        "{{base|upper}}",
        "{% for i in range(9) %}x{% endfor %}",
        "{{7*7}}",
        "{# a #}b",
        "{{base",
        "base}}",
    ],
)
def test_templates_that_are_not_literal_are_refused_by_key(folder, url):
    path = index(folder, {"a/0.1": [url, 0, 4]}, templates={"base": ""})
    for opened in (periplus.open, lambda place: MultiReferenceFileSystem(str(place))):
        with pytest.raises(periplus.FormatError, match=r"a/0\.1: "):
            opened(path)


@pytest.mark.parametrize("value", ["{{f}}", "{% x %}", 7, ["a"], None])
def test_values_of_templates_are_literal(folder, value):
    with pytest.raises(periplus.FormatError, match="template 'f' is not literal"):
        periplus.open(index(folder, templates={"f": value}))


def test_gen_counts(folder):
    """The example of the reference format, in the arithmetic that it uses."""
    gen = {
        "key": "a/{{i}}.{{j}}",
        "url": "{{u}}.bin",
        "offset": "{{(i * 2 + j) * 4}}",
        "length": "4",
        "dimensions": {"i": {"stop": 2}, "j": [0, 1]},
    }
    path = index(folder, templates={"u": "data"}, gen=[gen])
    expected = np.arange(16).reshape(2, 2, 2, 2).swapaxes(1, 2).reshape(4, 4)
    assert np.array_equal(periplus.open(path)["a"][:], expected)
    assert MultiReferenceFileSystem(str(path)).cat_file("a/1.1") == bytes(range(12, 16))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"dimensions": {"i": {"stop": 10**9}}}, periplus.LimitError),
        ({"dimensions": {"i": {"stop": 10**5}, "j": {"stop": 10**5}}}, periplus.LimitError),
        ({"dimensions": {"i": {"stop": 2**80}}}, periplus.FormatError),
        ({"dimensions": {"i": {"start": 0, "stop": 4, "step": 0}}}, periplus.FormatError),
        ({"dimensions": {"i": "abc"}}, periplus.FormatError),
        ({"dimensions": 7}, periplus.FormatError),
        ({"offset": "{{().__class__}}"}, periplus.FormatError),
        ({"offset": "{{__import__('os')}}"}, periplus.FormatError),
        ({"offset": "{{i ** 9 ** 9 ** 9}}"}, periplus.FormatError),
        ({"offset": "{{1 // i}}"}, periplus.FormatError),
        ({"offset": "{{9 * 9" + " * 9" * 60 + "}}"}, periplus.FormatError),
        ({"offset": "{{-5 + i}}"}, periplus.FormatError),
        ({"offset": "x"}, periplus.FormatError),
        ({"length": None}, periplus.FormatError),
        ({"key": 7}, periplus.FormatError),
        ({"url": "{{v}}"}, periplus.FormatError),
    ],
)
def test_gen_that_blows_up_or_computes_is_refused(change, error):
    gen = {"key": "a/{{i}}", "url": "x", "offset": "{{i}}", "length": 4, "dimensions": {"i": {"stop": 2}}, **change}
    with pytest.raises(error):
        expand({"version": 1, "refs": {}, "gen": [gen]})


# --- policy ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["/etc/passwd", "file:///etc/passwd", "https://example.com/x", "s3://b/x", "zip::x://y"]
)
def test_references_outside_of_policy_are_refused(folder, url):
    opened = periplus.open(index(folder, {"a/0.1": [url, 0, 4]}))
    with pytest.raises(periplus.DeniedError):
        opened["a"][:]
    assert opened["a"][2:].shape == (2, 4)  # what is allowed is read


@pytest.mark.parametrize("reference", [["/etc/passwd"], ["../data.bin"], ["https://example.com/x"]])
def test_whole_files_outside_of_policy_are_not_even_asked_for(folder, reference):
    with pytest.raises(periplus.DeniedError):
        periplus.open(index(folder, {"a/0.1": reference}))
    with pytest.raises(periplus.DeniedError):
        periplus.open(index(folder, {"b/.zarray": [*reference, 0, 10]}))


# --- Parquet --------------------------------------------------------------------------------------------------------


def parquet(folder, columns, array=(), record_size=4, name="refs.0.parq"):
    (folder / "refs/a").mkdir(parents=True, exist_ok=True)
    documents = {".zgroup": {"zarr_format": 2}, "a/.zarray": {**ARRAY, **dict(array)}}
    (folder / "refs/.zmetadata").write_text(json.dumps({"metadata": documents, "record_size": record_size}))
    target = io.BytesIO()
    pq.write_table(pa.table(columns), target)
    (folder / "refs/a" / name).write_bytes(target.getvalue())
    return folder / "refs"


SOUND = {
    "path": pa.array(["data.bin", None, "data.bin", "data.bin"]),
    "offset": pa.array([0, 0, 8, 12]),
    "size": pa.array([4, 0, 4, 4]),
    "raw": pa.array([None, b"\x09\x09\x09\x09", None, None], pa.binary()),
}


def test_a_sound_directory_is_read(folder):
    values = periplus.open(parquet(folder, SOUND))["a"][:]
    assert values.tolist() == [[0, 1, 9, 9], [2, 3, 9, 9], [8, 9, 12, 13], [10, 11, 14, 15]]


@pytest.mark.parametrize(
    "change",
    [
        {"offset": pa.array([-1, 0, 8, 12])},
        {"size": pa.array([4, 0, -4, 4])},
        {"offset": pa.array([2**63 - 2, 0, 8, 12])},
        {"offset": pa.array([2**64 - 1, 0, 8, 12], pa.uint64())},
        {"offset": pa.array([0.0, 0.0, 8.0, 12.0])},
        {"path": pa.array([1, 2, 3, 4])},
        {"path": pa.array([1.0, 2.0, 3.0, 4.0])},
        {"raw": pa.array([1, 2, 3, 4])},
        {"path": None},
        {"offset": None},
        {"offsets": pa.array([[0], None, None, None])},
        {
            "offsets": pa.array([[0, 4], None, None, None]),
            "sizes": pa.array([[4], None, None, None]),
            "range_path": pa.array(["data.bin"] * 4),
        },
        {
            "offsets": pa.array([[-4], None, None, None]),
            "sizes": pa.array([[4], None, None, None]),
            "range_path": pa.array(["data.bin"] * 4),
        },
        {
            "offsets": pa.array([[4], None, None, None]),
            "sizes": pa.array([[4], None, None, None]),
            "range_path": pa.array([None] * 4, pa.string()),
        },
        {"path": pa.array(["{{x}}data.bin"] * 4)},
    ],
)
def test_records_that_are_none_are_refused_by_name(folder, change):
    columns = {name: column for name, column in {**SOUND, **change}.items() if column is not None}
    place = parquet(folder, columns)
    with pytest.raises(periplus.FormatError, match=r"a/"):
        periplus.open(place)["a"][:]
    with pytest.raises(periplus.FormatError, match=r"a/"):
        MultiReferenceFileSystem(str(place)).cat(["a/0.0", "a/0.1", "a/1.0", "a/1.1"])


def test_rows_past_the_grid_are_refused(folder):
    longer = {name: pa.concat_arrays([column, column]) for name, column in SOUND.items()}
    with pytest.raises(periplus.FormatError, match=r"a/refs\.0\.parq: "):
        periplus.open(parquet(folder, longer))["a"][:]
    with pytest.raises(periplus.FormatError, match=r"a/refs\.0\.parq: row 7 is outside the grid"):
        periplus.open(parquet(folder, longer, record_size=8))["a"][:]


@pytest.mark.parametrize("name", ["../a", "/etc", "a/../../b", "a//b"])
def test_record_files_lie_in_their_directory(folder, name):
    place = parquet(folder, SOUND)
    documents = {"metadata": {f"{name}/.zarray": ARRAY}, "record_size": 4}
    (place / ".zmetadata").write_text(json.dumps(documents))
    with pytest.raises(periplus.FormatError, match="cannot be the path"):
        periplus.open(place)
    with pytest.raises(periplus.FormatError, match="cannot be the path"):
        MultiReferenceFileSystem(str(place))


def test_bytes_that_are_no_parquet_are_refused(folder):
    place = parquet(folder, SOUND)
    (place / "a/refs.0.parq").write_bytes(b"PAR1" + bytes(50) + b"PAR1")
    with pytest.raises(periplus.FormatError, match=r"a/refs\.0\.parq"):
        periplus.open(place)["a"][:]


@pytest.mark.parametrize("size", [0, -1, "4", None, 2**40])
def test_record_sizes_that_are_none_are_refused(folder, size):
    with pytest.raises(periplus.FormatError, match="record_size"):
        periplus.open(parquet(folder, SOUND, record_size=size))


def test_a_giant_grid_of_few_records_costs_nothing(folder):
    place = parquet(folder, SOUND, array={"shape": [2**31, 2**31], "chunks": [2, 2]})
    opened = periplus.open(place)
    assert opened.table.rows == 4
    assert opened["a"][:2, :4].tolist() == [[0, 1, 9, 9], [2, 3, 9, 9]]


def test_inline_bytes_of_the_wrong_size_do_not_decode(folder):
    text = "base64:" + base64.b64encode(b"abc").decode()
    with pytest.raises(periplus.DecodeError):
        periplus.open(index(folder, {"a/0.1": text}))["a"][:]


@pytest.mark.parametrize(
    "change",
    [
        {"chunks": [0]},
        {"dtype": "(100000,100000)f8"},
        {"compressor": {"id": "blosc", "shuffle": {}}},
        {"filters": [{"id": "delta", "dtype": "O"}]},
        {"filters": [{"id": "delta", "dtype": "<f8"}]},
    ],
)
def test_metadata_that_make_no_sense_are_format_errors_and_never_fill(tmp_path, change):
    (tmp_path / "src.bin").write_bytes(bytes(range(64)))
    array = {"zarr_format": 2, "shape": [10], "chunks": [10], "dtype": "|u1", "compressor": None, "filters": None,
             "fill_value": 0, "order": "C"}  # fmt: skip
    refs = {".zgroup": '{"zarr_format": 2}', "a/.zarray": json.dumps(array | change), "a/0": ["src.bin", 7, 10]}
    (tmp_path / "i.json").write_text(json.dumps({"version": 1, "refs": refs}))
    with pytest.raises(periplus.FormatError):
        periplus.open(tmp_path / "i.json")["a"][:]


@pytest.mark.parametrize(
    ("name", "again"),
    [
        ("a/0.0", '["data.bin", 8, 4]'),
        ("a/0.0", '["data.bin", 0, 4]'),
        ("a/.zarray", "{}"),
        (".zgroup", '{"zarr_format": 2}'),
    ],
)
def test_a_key_that_occurs_twice_is_refused(folder, name, again):
    path = index(folder)
    path.write_text(path.read_text().replace('"refs": {', f'"refs": {{"{name}": {again}, '))
    with pytest.raises(PeriplusError, match=f"the index has the name '{name}' twice in one object"):
        periplus.open(path)
    with pytest.raises(PeriplusError, match="twice in one object"):
        MultiReferenceFileSystem(str(path))


def test_a_document_with_a_name_twice_is_refused(folder):
    path = index(folder)
    text = json.dumps(ARRAY)
    path.write_text(path.read_text().replace(text, json.dumps(text.replace("{", '{"shape": [8, 8], ', 1))))
    with pytest.raises(PeriplusError, match=r"a/\.zarray: the index has the name 'shape' twice"):
        periplus.open(path)


def test_gen_does_not_replace_references(folder):
    gen = [{"key": "a/0.{{i}}", "url": "data.bin", "offset": "{{i * 8}}", "length": "4", "dimensions": {"i": [0, 1]}}]
    assert periplus.open(index(folder, gen=gen))["a"][:2].tolist() == [[0, 1, 8, 9], [2, 3, 10, 11]]
    with pytest.raises(PeriplusError, match=r"a/0\.1: gen and refs have different references"):
        periplus.open(index(folder, {"a/0.1": ["data.bin", 4, 4]}, gen=gen))


@pytest.mark.parametrize(
    "key", ["b/0.1", "/a/0.1", "a/0/1", "a/c/0/1", "a/b/0.1", "c.0.1", "b/c", "b/c/0", "0.0", "g/0"]
)
def test_a_chunk_of_no_array_is_refused(folder, key):
    with pytest.raises(PeriplusError, match=f"{key}: (this is the key of a chunk|not a chunk of 'a')"):
        periplus.open(index(folder, {key: ["data.bin", 4, 4]}))


def test_keys_with_dots_are_no_chunks_of_an_array_with_slashes(folder):
    with pytest.raises(PeriplusError, match=r"a/0\.0: not a chunk of 'a'"):
        periplus.open(index(folder, array={"dimension_separator": "/"}))


def test_other_keys_and_chunks_of_skipped_arrays_are_ignored(folder):
    more = {
        "README.md": "text",
        "docs/notes.txt": "text",
        "g/.zgroup": {"zarr_format": 2},
        ".zmetadata": {"zarr_consolidated_format": 1, "metadata": {}},
        "b/.zarray": {**ARRAY, "filters": [{"id": "unheard-of"}]},
        "b/0.0": ["data.bin", 0, 4],
        "b/0/0": ["data.bin", 0, 4],
    }
    for skipped in (True, ["b"]):
        opened = periplus.open(index(folder, more), skip_unsupported=skipped)
        assert list(opened) == ["a"]
        assert opened["a"][0, 1] == 1


@pytest.mark.parametrize("files", [[], [""], ["AAAA"]])
def test_a_damaged_files_table_is_named(folder, files):
    with pytest.raises(PeriplusError, match="the files table that periplus adds to references"):
        periplus.open(index(folder, periplus=files))
