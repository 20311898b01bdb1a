"""JSON from outside: one parser, which refuses what later code could not walk, at every entrance."""

import json
import shutil

import icechunk
import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

import periplus
from periplus.limits import Limits
from periplus.model import Georeference
from periplus.parse.json import MOST_DEPTH, check_depth, parse_json
from periplus.scan.georeference import gmljp2, worldfile
from periplus.scan.tiff import gdal as gdalmetadata
from periplus.table.document.document import document_for, dump, load
from periplus.testing.formats import tiff as tiffs
from periplus.testing.tamper import tamper

TOO_DEEP = (100_000, 800, MOST_DEPTH + 1)
"""Past what the decoder of Python reads; within it, but past what copies and walks can do; and just too deep."""


def nested(levels, kind="["):
    return "[" * levels + "]" * levels if kind == "[" else '{"a":' * levels + "1" + "}" * levels


def marked(document, levels, kind="["):
    """A document as JSON text, with lists in lists in place of the text `@`."""
    return json.dumps(document).replace('"@"', nested(levels, kind))


def test_json_is_parsed():
    assert parse_json(b'\xef\xbb\xbf{"a": [1, NaN]}', what="it")["a"][0] == 1
    assert parse_json(r'"\ud83e\uddca"', what="it") == "🧊"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "it is not JSON"),
        (b"{", "it is not JSON"),
        (b'"\xff"', "it is not JSON"),
        (b'"\xed\xa0\x80"', "it is not JSON"),
        ('"\\ud800"', "half a character"),
        ("9" * 5000, "it is not JSON"),
        ("[NaN]", "NaN is not a JSON number"),
        *((nested(levels, kind), "nested too deeply") for levels in TOO_DEEP for kind in "[{"),
    ],
)
def test_what_is_no_document_is_refused(text, said):
    with pytest.raises(periplus.FormatError, match=said) as caught:
        parse_json(text, what="it", url="a.json", constants=False)
    assert caught.value.url == "a.json"


def test_a_document_may_be_as_large_and_as_deep_as_the_limits():
    for kind in "[{":
        parse_json(nested(MOST_DEPTH, kind), what="it", limits=Limits())
    with pytest.raises(periplus.LimitError, match="it, parsed as JSON, would take"):
        parse_json("[" + "[]," * 100 + "0]", what="it", limits=Limits(memory_bytes=10_000))


def test_depth_is_that_of_the_deepest_member():
    check_depth([[], {"a": json.loads(nested(MOST_DEPTH - 2))}, "[[["], what="it")
    with pytest.raises(periplus.FormatError):
        check_depth([[], {"a": json.loads(nested(MOST_DEPTH - 1))}], what="it")


# --- entrances ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents")
    (folder / "a.tif").write_bytes(tiffs.written(np.full((1, 64, 64), 7, "u2"), compression="zstd"))
    index = periplus.index(folder / "a.tif")
    for name in ("a.parquet", "a.json", "a.icechunk"):
        index.write(folder / name)
    index.write(folder / "a.parq", form="kerchunk")
    return folder


def footer(folder, levels):
    path = folder / "f.parquet"
    path.write_bytes((folder / "a.parquet").read_bytes())
    tamper(path, document=lambda found: marked({**found, "attributes": {"": {"deep": "@"}}}, levels).encode())
    return path


def kerchunk(folder, levels, change):
    document = json.loads((folder / "a.json").read_text())
    refs = document["refs"]
    change(refs, json.loads(refs["0/data/.zattrs"]) | {"deep": "@"}, levels)
    (folder / "k.json").write_text(marked(document, levels))
    return folder / "k.json"


def as_object(refs, attributes, levels):
    refs["0/data/.zattrs"] = attributes


def as_text(refs, attributes, levels):
    refs["0/data/.zattrs"] = marked(attributes, levels)


def consolidated(refs, attributes, levels):
    documents = {key: json.loads(value) for key, value in refs.items() if key.rpartition("/")[2][:2] == ".z"}
    refs[".zmetadata"] = marked({"metadata": documents | {"0/data/.zattrs": attributes}}, levels)


def kerchunk_parquet(folder, levels):
    document = json.loads((folder / "a.parq/.zmetadata").read_text())
    document["metadata"]["0/data/.zattrs"]["deep"] = "@"
    (folder / "p.parq").mkdir(exist_ok=True)
    (folder / "p.parq/.zmetadata").write_text(marked(document, levels))
    return folder / "p.parq"


def repository(folder, levels):
    shutil.rmtree(folder / "r.icechunk", ignore_errors=True)
    shutil.copytree(folder / "a.icechunk", folder / "r.icechunk")
    storage = icechunk.local_filesystem_storage(str(folder / "r.icechunk"))
    session = icechunk.Repository.open(storage).writable_session("main")
    node = zarr.open_group(session.store, mode="r")["0/data"].metadata.to_dict()
    text = marked({**node, "attributes": {"deep": "@"}}, levels)
    sync(session.store.set("0/data/zarr.json", default_buffer_prototype().buffer.from_bytes(text.encode())))
    session.commit("deep")
    return folder / "r.icechunk"


def items(folder, levels):
    about = {"datetime": "2020-01-01T00:00:00Z", "deep": "@"}
    assets = {"data": {"href": "a.tif", "type": "image/tiff"}}
    item = {"type": "Feature", "id": "x", "properties": about, "assets": assets}
    (folder / "s.json").write_text(marked(item, levels))
    return folder / "s.json"


def store(folder, levels, zarr_format=3):
    path = folder / f"z{zarr_format}.zarr"
    group = zarr.create_group(path, zarr_format=zarr_format, overwrite=True)
    group.create_array("d", data=np.ones((4, 4), "u1"))
    attributes = {"deep": "@", "proj:projjson": "@", "_ARRAY_DIMENSIONS": ["y", "x"]}
    if zarr_format == 2:
        (path / "d/.zattrs").write_text(marked(attributes, levels))
    else:
        array = json.loads((path / "d/zarr.json").read_text())
        (path / "d/zarr.json").write_text(marked(array | {"attributes": attributes}, levels))
    return path


ENTRANCES = {
    "footer": lambda folder, levels: periplus.open(footer(folder, levels)),
    "kerchunk": lambda folder, levels: periplus.open(kerchunk(folder, levels, as_object)),
    "kerchunk-text": lambda folder, levels: periplus.open(kerchunk(folder, levels, as_text)),
    "kerchunk-consolidated": lambda folder, levels: periplus.open(kerchunk(folder, levels, consolidated)),
    "kerchunk-parquet": lambda folder, levels: periplus.open(kerchunk_parquet(folder, levels)),
    "icechunk": lambda folder, levels: periplus.open(repository(folder, levels)),
    "stac": lambda folder, levels: periplus.index(items(folder, levels)),
}


@pytest.mark.parametrize("levels", TOO_DEEP)
@pytest.mark.parametrize("entrance", ENTRANCES)
def test_a_document_that_is_too_deep_is_refused_at_every_entrance(entrance, levels, made):
    with pytest.raises(periplus.FormatError, match="nested too deeply"):
        ENTRANCES[entrance](made, levels)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("levels", TOO_DEEP)
@pytest.mark.parametrize("opener", [xr.open_dataset, xr.open_datatree])
def test_xgroup_skips_an_array_whose_document_is_too_deep(opener, levels, zarr_format, made):
    with pytest.warns(UserWarning, match="/d: .* nested too deeply"):
        opened = opener(store(made, levels, zarr_format), engine="xgroup")
    assert "d" not in opened.variables


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("levels", TOO_DEEP)
def test_validation_reports_a_document_that_is_too_deep(levels, zarr_format, made):
    report = periplus.validate(store(made, levels, zarr_format))
    assert any("nested too deeply" in one.message for one in report.findings)


@pytest.mark.parametrize("entrance", ["footer", "kerchunk", "icechunk", "stac"])
def test_what_opens_can_be_written_in_every_form_and_read_again(entrance, made, tmp_path):
    index = ENTRANCES[entrance](made, MOST_DEPTH - 10)
    for name in ("b.parquet", "b/", "b.json", "b.parq", "b.icechunk"):
        index.write(tmp_path / name, **({"form": "kerchunk"} if name == "b.parq" else {}))
        again = periplus.open(tmp_path / name, allow=[str(made)])
        assert len(again) == len(index)
    assert json.loads(index.sql("select attributes from arrays").column("attributes").to_pylist()[0]) is not None


@pytest.mark.parametrize("levels", TOO_DEEP)
def test_no_document_is_written_that_could_not_be_read(levels, made):
    catalog = periplus.open(made / "a.parquet").table.catalog
    deep = 1
    for _ in range(levels):
        deep = [deep]
    with pytest.raises(periplus.FormatError, match="nested too deeply"):
        dump(document_for(type(catalog)(arrays=catalog.arrays, attributes={"": {"deep": deep}})))
    held = json.loads(nested(MOST_DEPTH - 5))
    text = dump(document_for(type(catalog)(arrays=catalog.arrays, attributes={"": {"deep": held}})))
    assert load(text, limits=Limits()).catalog.attributes[""]["deep"] == held


@pytest.mark.parametrize("levels", TOO_DEEP)
def test_xml_may_be_as_deep_as_it_likes(levels):
    xml = "<a>" * levels + "</a>" * levels
    assert not gdalmetadata.items(xml).image
    assert gmljp2._grid(xml.encode()) is None
    assert worldfile.auxiliary(f"<PAMDataset>{xml}</PAMDataset>") == Georeference()
