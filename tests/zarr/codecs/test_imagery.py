"""Imagery through kerchunk references, where its chunks are unlike those of Zarr."""

import base64
import json
from pathlib import Path

import numpy as np
import pytest
import zarr
from rasterio import Affine
from zarr.storage import FsspecStore

import periplus
from periplus.errors import DecodeError
from periplus.testing.formats import jpeg2000 as j2ks
from periplus.testing.formats import nitf as nitfs
from periplus.zarr.fsspec.filesystem import MultiReferenceFileSystem

pytestmark = pytest.mark.usefixtures("our_codecs")

CORNERS = "411900N0200400E411900N0200700E411700N0200700E411700N0200400E"
FILES = Path(__file__).parents[2] / "decode" / "files"


def by_zarr(target):
    system = MultiReferenceFileSystem(str(target), asynchronous=True)
    return zarr.open_group(FsspecStore(system, read_only=True, path=""), mode="r")


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("name", ["steps-apart", "steps-chroma"])
def test_chunks_of_several_tiles_end_where_the_image_ends(name, zarr_format, tmp_path):
    path = tmp_path / "a.j2k"
    path.write_bytes((FILES / f"{name}.j2k").read_bytes())
    with periplus.index(path) as index:
        array = index["0/data"]
        assert any(n % size for n, size in zip(array.shape, array.chunks, strict=True))
        index.write(tmp_path / "a.json", zarr_format=zarr_format, codecs="all")
        # Compared with another decoder where these files are read.
        np.testing.assert_array_equal(by_zarr(tmp_path / "a.json")["0/data"][...], array[...])


@pytest.fixture
def virtual(tmp_path):
    """References that VirtualiZarr writes of a NITF file of one named band, and its values."""
    virtualizarr = pytest.importorskip("virtualizarr")
    registry = pytest.importorskip("obspec_utils.registry")
    from obstore.store import LocalStore

    from periplus.zarr.virtualizarr import Parser

    values = nitfs.values_of("u8", 1)
    path, target = tmp_path / "a.ntf", tmp_path / "a.json"
    path.write_bytes(nitfs.nitf(nitfs.ImageSegment(values=values, block=(32, 48), icords="G", igeolo=CORNERS)))
    stores = registry.ObjectStoreRegistry({"file://": LocalStore()})
    dataset = virtualizarr.open_virtual_dataset(path.as_uri(), registry=stores, parser=Parser())
    dataset = dataset.assign_coords(bands=("bands", np.array(["r\u00f6t"])))
    dataset.vz.to_kerchunk(str(target), format="json")
    return target, values, periplus.index(path)["0/data"].georeference


@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
def test_virtualizarr_of_an_image_with_a_place_and_named_bands(virtual):
    target, values, place = virtual
    refs = json.loads(target.read_text())["refs"]
    assert "spatial_ref/" in refs  # a scalar's chunk, whose key has no number
    assert json.loads(refs["bands/.zarray"])["dtype"] == "<U3"
    with periplus.open(target) as index:
        assert list(index) == ["data"]
        np.testing.assert_array_equal(index["data"][...], values)
        assert index["data"].georeference.transform == pytest.approx(place.transform)
        assert index.table.catalog.coordinates["bands"].values.tolist() == ["r\u00f6t"]


@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
@pytest.mark.parametrize(("data", "why"), [(b"\xff" * 12, "no character"), (b"r\0\0\0", "4 of 12 bytes")])
def test_names_that_are_no_strings_are_refused(virtual, data, why):
    target, _, _ = virtual
    said = json.loads(target.read_text())
    said["refs"]["bands/0"] = "base64:" + base64.b64encode(data).decode()
    target.write_text(json.dumps(said))
    with pytest.raises(DecodeError, match=why):
        periplus.open(target)


def test_levels_say_how_much_larger_their_pixels_are(tmp_path):
    path = tmp_path / "a.jp2"
    places = {"crs": "EPSG:32631", "transform": Affine(10, 0, 500_000, 0, -10, 5_000_000)}
    path.write_bytes(j2ks.made(j2ks.picture(1, "u1", 101, 203), CODEC="JP2", RESOLUTIONS=3, **places))
    layout = zarr.open_group(periplus.index(path).store(), mode="r").attrs["multiscales"]["layout"]
    assert [item["spatial:shape"] for item in layout] == [[101, 203], [51, 102], [26, 51]]
    assert [item["spatial:transform"][0] for item in layout] == [10, 20, 40]
    assert [item["transform"]["scale"] for item in layout] == [[1, 1], [2, 2], [2, 2]]


@pytest.mark.parametrize(
    ("tile", "movable"),
    [((128, 128), True), ((100, 77), False), ((96, 128), False), ((192, 64), False), ((384, 256), True)],
)
def test_tiles_of_jpeg_2000_that_others_misplace_have_a_name_of_ours(tile, movable, tmp_path):
    """Where tiles do not begin on the grid of wavelets and code-blocks, osml-imagery-io decodes other values."""
    options = {"blockxsize": tile[0], "blockysize": tile[1], "RESOLUTIONS": 3, "CODEBLOCK_WIDTH": 64}
    (tmp_path / "a.j2k").write_bytes(j2ks.made(j2ks.picture(), **options))
    index = periplus.index(tmp_path / "a.j2k")
    assert index.store(codecs="all").layout.leaves["0/data"].kind == ("imagery" if movable else "ours")
    decoded = pytest.importorskip("aws.osml.io.zarr_codecs").decode_jpeg2000
    settings = index["0/data"].array.encodings[0].codecs[0]["configuration"]
    data, rows = (tmp_path / "a.j2k").read_bytes(), index.select(array="0/data").to_pylist()
    for row in rows:
        high, wide = row["y_chunk"] * tile[1], row["x_chunk"] * tile[0]
        stored = data[row["offset"] : row["offset"] + row["length"]]
        theirs = decoded(stored, main_header=base64.b64decode(settings["main_header"]), resolution_level=0)
        ours = j2ks.picture()[:, high : high + tile[1], wide : wide + tile[0]]
        if movable:
            np.testing.assert_array_equal(theirs, ours)
    np.testing.assert_array_equal(index["0/data"][...], j2ks.picture())
