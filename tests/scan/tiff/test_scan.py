"""Arrays and references of every TIFF flavour, compared with tifffile and with the values that were written."""

import io
import json
import struct
import zlib

import numpy as np
import pytest
import tifffile

from periplus.limits import Limits
from periplus.model import About, Array, Found, Need, Refs, Source
from periplus.scan import SCANNERS, sniff
from periplus.scan.drive import MemoryFolder, scan_bytes
from periplus.scan.tiff import scan as tiff
from periplus.testing.formats import tiff as tiffs
from periplus.testing.formats.custom_tiff import DOUBLE, LONG, RATIONAL, SHORT, image_tags
from periplus.testing.formats.custom_tiff import tiff as handmade
from periplus.testing.scans import watch_scan

NAMES = tiffs.names()
GROUPS = 8


def found(data: bytes) -> dict[str, Found]:
    return {step.array.name: step for step in scan_bytes(data) if isinstance(step, Found)}


def values(item: Found, data: bytes) -> np.ndarray | None:
    """The array decoded with NumPy and zlib alone, or None where its codecs are not of the simplest."""
    array, refs = item.array, item.refs
    names = [codec["name"] for codec in array.encodings[0].codecs]
    if not {"transpose", "bytes", "numcodecs.zlib"}.issuperset(names):
        return None
    big = (
        next(c for c in array.encodings[0].codecs if c["name"] == "bytes").get("configuration", {}).get("endian")
        == "big"
    )
    out = np.full(array.shape, array.fill, array.dtype)
    for row in range(len(refs)):
        start = refs.chunk[:, row] * array.chunks
        valid = np.minimum(array.chunks, np.array(array.shape) - start)
        stored = data[refs.offset[row] : refs.offset[row] + refs.length[row]]
        if "numcodecs.zlib" in names:
            stored = zlib.decompress(stored)
        flat = np.frombuffer(stored, array.dtype.newbyteorder(">" if big else "<"))
        bands, _, width = array.chunks
        chunk = (
            flat.reshape(-1, width, bands).transpose(2, 0, 1)
            if "transpose" in names
            else flat.reshape(bands, -1, width)
        )
        assert chunk.shape[1] >= valid[1]
        place = tuple(slice(s, s + n) for s, n in zip(start, valid, strict=True))
        out[place] = chunk[tuple(slice(0, n) for n in valid)]
    return out


@pytest.mark.parametrize("group", range(GROUPS))
def test_every_flavour_gives_the_arrays_that_were_written(group: int) -> None:
    for name in NAMES[group::GROUPS]:
        case = tiffs.case(name)
        items = found(case.data)
        assert set(items) == set(case.arrays), name
        for key, expected in case.arrays.items():
            array = items[key].array
            assert array.shape == expected.shape, name
            assert array.dtype == expected.dtype, name
            assert array.dims == ("bands", "y", "x")
            assert array.level == int(key.split("/")[-2])
            assert len(json.dumps(array.attributes)) < 8192, name
            assert json.loads(json.dumps(array.encodings[0].codecs)), name
            decoded = values(items[key], case.data)
            if decoded is not None:
                np.testing.assert_array_equal(decoded, expected, err_msg=name)
        if name.startswith(("le-", "be-")) and "strips" not in name:
            with tifffile.TiffFile(io.BytesIO(case.data)) as opened:
                page, refs = opened.pages.first, items["0/data"].refs
                assert refs.offset.tolist() == list(page.dataoffsets), name
                assert refs.length.tolist() == list(page.databytecounts), name


def test_a_cog_is_one_request_within_its_head() -> None:
    steps = tiff.scan(Source(url="a.tif", size=len(tiffs.case("cog").data)), Limits())
    need = next(steps)
    assert need == Need(0, min(tiff.HEAD_BYTES, len(tiffs.case("cog").data)))
    after = [steps.send(tiffs.case("cog").data[: need.length]), *steps]
    assert all(isinstance(step, Found | About) for step in after)


def test_answers_may_be_memoryviews_and_the_size_unknown() -> None:
    data = tiffs.case("be-big-pages-sub").data
    steps = tiff.scan(Source(url="a.tif"), Limits())
    memory = MemoryFolder(memoryview(data), url="a.tif", limits=Limits())
    step, items = next(steps), []
    while step is not None:
        if isinstance(step, Found | About):
            items.append(step)
            step = next(steps, None)
        else:
            step = steps.send(memory.answer(step))
    assert [item.array.name for item in items] == list(found(data))


def test_overviews_at_the_end_of_a_large_file_take_few_requests() -> None:
    image = tiffs.picture("large", "u2", (1, 400, 500))
    data = tiffs.gdal_written(image, compress="deflate", overviews=(2, 4), blockysize=1)
    assert len(data) > 5 * tiff.HEAD_BYTES
    items, asked = watch_scan(tiff, data, Limits())
    assert len(asked) <= 4
    assert sum(asked) < 50_000
    assert len(items) == 3


@pytest.mark.parametrize("kept_apart", ["transform", "offsets"])
def test_values_around_a_range_that_was_requested_before_are_found(kept_apart: str) -> None:
    """The second directory's values are asked for together, across the eight bytes that the first one asked for."""
    gap, strips = 20_000, 6
    near, held, later = 8 + gap, 8 + gap + 100, 8 + gap + 104
    values = bytearray(200)
    struct.pack_into("<3d", values, 0, 2.0, 2.0, 0.0)
    if kept_apart == "transform":
        struct.pack_into("<6d", values, later - near, 0, 0, 0, 500.0, 900.0, 0)
        tags = image_tags(4, 4, t33922=(DOUBLE, struct.pack("<I", later), 6))
    else:
        struct.pack_into(f"<{strips}I", values, later - near, *range(8, 8 + strips))
        tags = image_tags(1, strips, t278=1, t273=(LONG, struct.pack("<I", later), strips), t279=(SHORT, [1] * strips))
    tags[33550] = (DOUBLE, struct.pack("<I", near), 3)
    first = image_tags(4, 4, t282=(RATIONAL, struct.pack("<I", held), 1))
    items = found(handmade(first, tags, data=bytes(gap) + values))
    if kept_apart == "transform":
        assert items["images/1/0/data"].array.georeference.transform == (2.0, 0.0, 500.0, 0.0, -2.0, 900.0)
    else:
        assert items["images/1/0/data"].refs.offset.tolist() == [8]


def test_sparse_tiles_have_no_rows_and_fill_is_nodata() -> None:
    item = found(tiffs.case("sparse").data)["0/data"]
    assert item.array.grid == (1, 3, 3)
    assert sorted(map(tuple, item.refs.chunk.T.tolist())) == [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1)]
    assert item.array.fill == 7


def test_planar_chunks_hold_one_band_and_chunky_all() -> None:
    assert found(tiffs.case("le-classic-tiles-planar-zstd-p1").data)["0/data"].array.chunks == (1, 32, 32)
    assert found(tiffs.case("le-classic-tiles-chunky-zstd-p1").data)["0/data"].array.chunks == (3, 32, 32)


class TestPlainStrips:
    """Uncompressed strips become row bands of about half a megabyte."""

    def strips(self, height: int, rows: int, **options) -> tuple[Array, Refs, bytes, np.ndarray]:
        image = tiffs.picture("strips", "u2", (1, height, 1000))
        data = tiffs.written(image, tiled=False, rowsperstrip=rows, **options)
        item = found(data)["0/data"]
        return item.array, item.refs, data, image

    @pytest.mark.parametrize("rows", [1, 7, 1000])
    def test_adjacent_strips_are_cut_or_joined(self, rows: int) -> None:
        array, refs, data, image = self.strips(1000, rows)
        assert array.chunks == (1, 250, 1000)
        assert refs.length.tolist() == [250 * 2000] * 4
        np.testing.assert_array_equal(values(Found(array, refs), data), image)

    def test_a_small_image_is_one_chunk(self) -> None:
        array, refs, _, _ = self.strips(100, 8)
        assert array.chunks == (1, 100, 1000)
        assert refs.length.tolist() == [100 * 2000]

    def test_strips_in_disorder_are_cut_to_a_divisor(self) -> None:
        image = tiffs.picture("disorder", "u1", (1, 1800, 1000))
        strips = [image[0, top : top + 600].tobytes() for top in (0, 600, 1200)]
        offsets = [8 + 600_000, 8, 8 + 1_200_000]
        data = handmade(
            image_tags(1000, 1800, t273=(LONG, offsets), t279=(LONG, [600_000] * 3), t278=600),
            data=strips[1] + strips[0] + strips[2],
        )
        item = found(data)["0/data"]
        assert item.array.chunks == (1, 300, 1000)
        np.testing.assert_array_equal(values(item, data), image)

    def test_compressed_strips_stay_as_they_are(self) -> None:
        array, refs, _, _ = self.strips(1000, 10, compression="deflate")
        assert array.chunks == (1, 10, 1000)
        assert len(refs) == 100

    def test_missing_byte_counts_are_computed(self) -> None:
        pixels = bytes(range(200))
        tags = image_tags(20, 10, t273=(LONG, [8, 88, 168]), t278=4, t279=None)
        item = found(handmade(tags, data=pixels))["0/data"]
        np.testing.assert_array_equal(values(item, b"\0" * 8 + pixels).ravel(), list(pixels))

    def test_rows_per_strip_may_be_absent_or_huge(self) -> None:
        for rows in (None, 2**32 - 1, 0):
            item = found(handmade(image_tags(20, 10, t278=rows), data=bytes(200)))["0/data"]
            assert item.array.chunks == (1, 10, 20)

    def test_a_padded_last_strip_is_read_up_to_its_rows(self) -> None:
        tags = image_tags(20, 10, t273=(LONG, [8, 200]), t278=8, t279=(LONG, [160, 160]))
        item = found(handmade(tags, data=bytes(400)))["0/data"]
        assert item.refs.length.tolist() == [160, 40]


class TestImages:
    """Overviews, masks and pages find their names."""

    def test_overviews_in_the_chain_and_as_sub_directories_are_levels(self) -> None:
        chain, sub = (found(tiffs.case(f"le-classic-pages-{kind}").data) for kind in ("chain", "sub"))
        assert list(chain) == list(sub) == ["0/data", "1/data", "2/data", "images/1/0/data"]
        assert [item.array.level for item in sub.values()] == [0, 1, 2, 0]

    def test_masks_go_with_the_level_of_their_size(self) -> None:
        items = found(tiffs.case("overviews-mask").data)
        assert items["1/mask"].array.shape[1:] == items["1/data"].array.shape[1:]
        assert items["0/mask"].array.dtype == np.uint8

    def test_levels_are_ordered_by_size(self) -> None:
        small, large = (image_tags(n, n, t254=1) for n in (4, 16))
        items = found(handmade(image_tags(32, 32), small, large, data=bytes(1024)))
        assert [item.array.shape[1] for item in items.values()] == [32, 16, 4]

    def test_sides_of_narrow_images_are_rounded_down(self) -> None:
        """As GDAL's COG driver has them, whose overviews of five rows have two, then one."""
        halves = (image_tags(*size, t254=1) for size in ((55, 2), (27, 1), (13, 1)))
        items = found(handmade(image_tags(111, 5), *halves, data=bytes(1024)))
        assert [item.array.level for item in items.values()] == [0, 1, 2, 3]

    def test_a_reduced_image_of_another_kind_is_its_own_image(self) -> None:
        odd = image_tags(8, 8, t254=1, t258=(SHORT, [16]), t279=128)
        larger = image_tags(40, 40, t254=1)
        label = image_tags(30, 4, t254=1)
        items = found(handmade(image_tags(32, 32), odd, larger, label, data=bytes(1600)))
        assert list(items) == ["0/data", "images/1/0/data", "images/2/0/data", "images/3/0/data"]

    def test_a_mask_of_no_level_is_its_own_image(self) -> None:
        items = found(handmade(image_tags(32, 32), image_tags(20, 20, t254=4), data=bytes(1024)))
        assert list(items) == ["0/data", "images/1/0/data"]

    def test_directories_without_an_image_are_passed_over(self) -> None:
        exif = {36864: (7, b"0230"), 259: (SHORT, [1])}
        assert list(found(handmade(exif, image_tags(4, 4), data=bytes(16)))) == ["0/data"]

    def test_an_image_we_refuse_is_noted_and_the_rest_is_kept(self) -> None:
        steps = scan_bytes(handmade(image_tags(4, 4), image_tags(4, 4, t259=65000), data=bytes(16)))
        about = next(step for step in steps if isinstance(step, About))
        assert about.attributes == {"refused": ["image 1: compression 65000 is not supported"]}
        assert [step.array.name for step in steps if isinstance(step, Found)] == ["0/data"]


@pytest.mark.parametrize(
    ("bits", "form", "dtype"),
    [
        (1, 1, "u1"), (9, 1, "u2"), (17, 1, "u4"), (33, 1, "u8"), (8, 2, "i1"), (64, 2, "i8"),
        (16, 3, "f2"), (24, 3, "f4"), (32, 3, "f4"), (64, 3, "f8"),
        (16, 5, "c8"), (32, 5, "c8"), (64, 5, "c16"), (32, 6, "c8"), (64, 6, "c8"), (128, 6, "c16"),
    ],
)  # fmt: skip
def test_every_kind_of_sample_has_a_type_that_holds_it(bits: int, form: int, dtype: str) -> None:
    """Pairs of integers (form 5) are complex floats: NumPy has no such integers."""
    tags = image_tags(4, 2, t258=(SHORT, [bits]), t339=(SHORT, [form]), t279=bits)
    assert found(handmade(tags, data=bytes(bits)))["0/data"].array.dtype == np.dtype(dtype)


def test_formats_are_recognised_by_content() -> None:
    assert tiff in SCANNERS
    for magic in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
        assert sniff(magic + bytes(12)) is tiff
    assert sniff(b"GIF89a" + bytes(12)) is None
    assert sniff(b"") is None
