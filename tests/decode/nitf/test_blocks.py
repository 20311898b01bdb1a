"""NITF images of every interleave, blocking, mask and pixel type give the values they were made of, and GDAL reads."""

from dataclasses import replace

import numpy as np
import pytest
import rasterio
from rasterio.errors import RasterioError

import periplus
from periplus.errors import FormatError
from periplus.scan import row_bands
from periplus.scan.drive import scan_bytes
from periplus.scan.nitf import blocks as nitfblocks
from periplus.scan.nitf import scan as nitf
from periplus.testing.formats import nitf as nitfs

GROUPS = 8


def fill_of(item):
    return 0 if item.pad is None else item.pad


@pytest.mark.parametrize("group", range(GROUPS))
@pytest.mark.parametrize("version", ["NITF02.10", "NITF02.00"])
def test_every_layout_gives_the_values_it_was_made_of(group, version, read_all):
    names = nitfs.names()[group::GROUPS]
    for name in names if version == "NITF02.10" else names[::7]:
        item = nitfs.case(name)
        found = read_all(nitfs.nitf(item, version=version))["0/data"]
        assert found.dtype == item.values.dtype, name
        np.testing.assert_array_equal(found, nitfs.with_absent_blocks(item, fill_of(item)), err_msg=name)


# GDAL 3.10 takes 8 bits for unsigned, packs odd widths otherwise, and has trouble with masks of several bands.
UNLIKE = frozenset({"i8", "i11", "i12", "u12", "u20", "u40"})


@pytest.mark.parametrize("mode", ["B", "P", "R", "S"])
def test_gdal_reads_the_values_they_were_made_of(mode, tmp_path):
    compared = []
    path = tmp_path / "a.ntf"
    for name in nitfs.names():
        form, kind, own, blocking, bands = name.split("-")
        alone = form == "masked" or kind in ("u1", "b1")
        if own != mode or kind in UNLIKE or bands != ("1" if alone else "3"):
            continue
        item = nitfs.case(name)
        path.write_bytes(nitfs.nitf(item))
        try:
            with rasterio.open(path) as file:
                wanted = file.read()
        except RasterioError:
            continue
        found = nitfs.with_absent_blocks(item, fill_of(item))
        if kind not in ("u8", "u1", "b1"):
            # Of the value of pad pixels GDAL takes one byte.
            there = nitfs.with_absent_blocks(replace(item, values=np.zeros(found.shape, np.uint8)), 1) == 0
            found, wanted = found[there], wanted[there]
        np.testing.assert_array_equal(found, wanted, err_msg=name)
        compared.append((form, kind, blocking))
    assert {form for form, _, _ in compared} == {"plain", "masked"}
    assert {blocking for _, _, blocking in compared} == set(nitfs.BLOCKINGS)
    assert {kind for _, kind, _ in compared} >= {"u8", "u16", "u32", "i16", "f32", "f64", "c64"}


@pytest.mark.parametrize("interleave", ["P", "B", "R", "S"])
@pytest.mark.parametrize("dtype", ["u1", "i2", "u2", "f4", "f8", "i4", "u4", "c8"])
def test_what_gdal_writes_reads_as_gdal_reads_it(interleave, dtype, read_all, tmp_path):
    values = nitfs.values_of(
        {"u1": "u8", "i2": "i16", "u2": "u16", "f4": "f32", "f8": "f64", "c8": "c64"}.get(dtype, "u32")
    )
    path = tmp_path / "a.ntf"
    options = {"IMODE": interleave, "BLOCKXSIZE": 32, "BLOCKYSIZE": 64}
    with rasterio.open(
        path, "w", driver="NITF", width=90, height=72, count=3, dtype=np.dtype(dtype).name, **options
    ) as file:
        file.write(values.astype(dtype))
    np.testing.assert_array_equal(read_all(path.read_bytes())["0/data"], values.astype(dtype))


@pytest.fixture
def small_bands(monkeypatch):
    for module in (nitfblocks, row_bands):
        monkeypatch.setattr(module, "BAND_BYTES", 512)
    monkeypatch.setattr(nitfblocks, "LARGE_BYTES", 4096)


@pytest.mark.usefixtures("small_bands")
def test_a_large_single_block_is_cut_to_bands_of_rows(read_all):
    for mode, kind in (("B", "u16"), ("P", "u8"), ("R", "u8"), ("S", "u8"), ("B", "u12"), ("P", "u12"), ("S", "u1")):
        item = nitfs.ImageSegment(values=nitfs.values_of(kind, 3, (81, 70)), kind=kind, mode=mode, block=(84, 0))
        data = nitfs.nitf(item)
        array = scan_bytes(data, scanner=nitf)[1].array
        if kind != "u1":
            assert array.chunks[1] < 81, mode
        np.testing.assert_array_equal(read_all(data)["0/data"], item.values, err_msg=f"{mode} {kind}")


@pytest.mark.usefixtures("small_bands")
def test_large_blocks_of_a_masked_image_are_cut_to_divisors(read_all):
    for mode in "BPRS":
        item = nitfs.ImageSegment(
            values=nitfs.values_of("u64", 2, (110, 106)), kind="u64", mode=mode, block=(100, 106), masked=True,
            absent=frozenset({1}), pad=5,
        )  # fmt: skip
        data = nitfs.nitf(item)
        assert scan_bytes(data, scanner=nitf)[1].array.chunks[1] < 100, mode
        np.testing.assert_array_equal(read_all(data)["0/data"], nitfs.with_absent_blocks(item, 5), err_msg=mode)


def test_all_image_segments_are_read(read_all):
    items = [nitfs.ImageSegment(values=nitfs.values_of(kind, 2), kind=kind, mode="P") for kind in ("u8", "u16", "f32")]
    found = read_all(nitfs.nitf(*items))
    assert list(found) == ["0/data", "images/1/0/data", "images/2/0/data"]
    for values, item in zip(found.values(), items, strict=True):
        np.testing.assert_array_equal(values, item.values)


@pytest.mark.parametrize(("kind", "block"), [("u1", (0, 0)), ("b1", (5, 7)), ("u12", (0, 0)), ("i11", (5, 7))])
@pytest.mark.parametrize("masked", [False, True])
def test_bands_in_sequence_start_at_whole_bytes(kind, block, masked, read_all, tmp_path):
    values = nitfs.values_of(kind, 3, (19, 35))
    item = nitfs.ImageSegment(values=values, kind=kind, block=block, masked=masked)
    data = nitfs.nitf(item)
    np.testing.assert_array_equal(read_all(data)["0/data"], values)
    if (kind, masked) == ("u1", False):
        path = tmp_path / "a.ntf"
        path.write_bytes(data)
        with rasterio.open(path) as file:
            np.testing.assert_array_equal(file.read(), values)


@pytest.mark.usefixtures("small_bands")
def test_large_bands_in_sequence_start_at_whole_bytes(read_all):
    values = nitfs.values_of("u12", 2, (37, 35))
    data = nitfs.nitf(nitfs.ImageSegment(values=values, kind="u12"))
    np.testing.assert_array_equal(read_all(data)["0/data"], values)


@pytest.mark.parametrize("mode", ["B", "P", "S"])
def test_masked_blocks_that_overlap_are_refused(mode):
    """Blocks cut at the edge of the image, as some writers have them: read as whole ones they would show others."""
    values = nitfs.values_of("u8", 3)
    item = nitfs.ImageSegment(values=values, mode=mode, block=(32, 48), masked=True)
    streams = list(nitfs.blocks_of(item))
    streams[1] = streams[1][:-96]
    with pytest.raises(FormatError, match="blocks that overlap"):
        scan_bytes(nitfs.nitf(replace(item, streams=streams)), scanner=nitf)


def squeezed(mode, kind, pad=None):
    """An image whose blocks are cut where it ends, and its values."""
    values = nitfs.values_of(kind, 3, (70, 90))
    turn = {"B": (0, 1, 2), "S": (0, 1, 2), "P": (1, 2, 0), "R": (1, 0, 2)}[mode]
    groups = [values[band : band + 1] for band in range(3)] if mode == "S" else [values]
    parts = [group[:, y : y + 32, x : x + 48] for group in groups for y in (0, 32, 64) for x in (0, 48)]
    streams = [
        np.ascontiguousarray(part.transpose(turn)).astype(part.dtype.newbyteorder(">")).tobytes() for part in parts
    ]
    absent = frozenset({0, 3, 7}) if mode == "S" else frozenset({0, 3})
    return nitfs.ImageSegment(
        values=values, kind=kind, mode=mode, block=(32, 48), streams=streams, masked=True, absent=absent, pad=pad
    )


@pytest.mark.parametrize("mode", ["B", "P", "R", "S"])
@pytest.mark.parametrize("kind", ["u8", "u16", "f32"])
def test_masked_blocks_may_be_cut_where_the_image_ends(mode, kind, tmp_path):
    item = squeezed(mode, kind, 7 if kind != "f32" else None)
    path = tmp_path / "a.ntf"
    path.write_bytes(nitfs.nitf(item))
    wanted = nitfs.with_absent_blocks(item, fill_of(item))
    with periplus.index(path) as index:
        np.testing.assert_array_equal(index["0/data"][...], wanted)
        np.testing.assert_array_equal(index["0/data"][1:, 30:67, 40:], wanted[1:, 30:67, 40:])


def test_masked_blocks_that_are_cut_are_what_osml_reads(tmp_path):
    osml = pytest.importorskip("aws.osml.io")
    item = squeezed("B", "u8")
    path = tmp_path / "a.ntf"
    path.write_bytes(nitfs.nitf(item))
    np.testing.assert_array_equal(osml.imread(str(path)), nitfs.with_absent_blocks(item, 0))
