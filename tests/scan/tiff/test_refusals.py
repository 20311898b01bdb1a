"""Files that declare impossible values are refused with a reason, and nothing is allocated from what they declare."""

import struct

import pytest

from periplus.errors import FormatError, LimitError
from periplus.limits import Limits
from periplus.scan.drive import scan_bytes
from periplus.testing.formats import tiff as tiffs
from periplus.testing.formats.custom_tiff import DOUBLE, LONG, LONG8, SHORT, image_tags, tiff


def refusal(data: bytes, limits: Limits | None = None) -> str:
    with pytest.raises((FormatError, LimitError)) as caught:
        scan_bytes(data, url="s3://bucket/a.tif", limits=limits)
    assert caught.value.url == "s3://bucket/a.tif"
    return str(caught.value)


@pytest.mark.parametrize(
    "data", [b"", b"II*\0", b"II*\0\x08\0\0\0", b"MM\0+\0\x04\0\0" + bytes(8), b"GIF89a" + bytes(20)]
)
def test_what_is_no_tiff(data: bytes) -> None:
    refusal(data)


def kept(data: bytes) -> tuple[list[str], list[str]]:
    """The arrays of a file, and what it is said to lack."""
    about, *found = scan_bytes(data, url="s3://bucket/a.tif")
    return [one.array.name for one in found], about.attributes["refused"]


@pytest.mark.parametrize("following", [[0], [1, 0], [1, 2, 1]])
def test_a_loop_of_directories_ends_after_the_pages_before_it(following: list[int]) -> None:
    pages = len(following)
    names, refused = kept(tiff(*[image_tags(4, 4)] * pages, data=bytes(16), following=following))
    assert names == ["0/data", *(f"images/{page}/0/data" for page in range(1, pages))]
    assert refused == [f"after image {pages - 1}: the chain of directories runs in a loop"]


def test_a_sub_directory_that_is_its_parent() -> None:
    names, refused = kept(tiff(image_tags(4, 4, t330=8 + 16), data=bytes(16)))
    assert names == ["0/data"]
    assert "loop" in refused[0]


@pytest.mark.parametrize(
    ("pointer", "reason"),
    [(1 << 30, "ends past the end of the file"), (8, "has no tags"), (24, "number of tags in a directory is 65535")],
)
def test_a_wrong_pointer_to_the_next_directory_ends_the_chain(pointer: int, reason: str) -> None:
    data = bytearray(tiff(*[image_tags(4, 4)] * 2, data=bytes(16) + b"\xff" * 8))
    data[-4:] = struct.pack("<I", pointer)
    names, refused = kept(bytes(data))
    assert names == ["0/data", "images/1/0/data"]
    assert refused[0].startswith("after image 1: ")
    assert reason in refused[0]


@pytest.mark.parametrize("tag", [256, 258, 259, 277, 317])
@pytest.mark.parametrize("kind", [0, 99])
def test_a_type_that_does_not_exist(tag: int, kind: int) -> None:
    data = bytearray(tiff(image_tags(4, 4, t317=(SHORT, [1])), data=bytes(16)))
    place = data.index(struct.pack("<HHI", tag, SHORT, 1)) if tag != 256 else data.index(struct.pack("<H", 256), 24)
    data[place + 2 : place + 4] = struct.pack("<H", kind)
    assert f"tag {tag} has type {kind}" in refusal(bytes(data))


def test_a_damaged_page_leaves_the_others() -> None:
    lost = {"t256": None, "t257": None}
    for change, reason in (
        ({"t273": 1 << 30}, "ends past"),
        ({"t256": 0}, "0 x 4"),
        ({"t278": 1}, "4 strips"),
        (lost, "no width"),
    ):
        names, refused = kept(tiff(image_tags(4, 4), image_tags(4, 4, **change), image_tags(4, 4), data=bytes(16)))
        assert names[0] == "0/data"
        assert len(names) == 2
        assert refused[0].startswith("image 1: ")
        assert reason in refused[0]
    assert "ends past" in refusal(tiff(image_tags(4, 4, t273=1 << 30), image_tags(4, 4), data=bytes(16)))


def test_a_truncated_file_names_the_tile_that_is_cut_off() -> None:
    data = tiffs.case("le-classic-tiles-chunky-zstd-p1").data
    assert "ends past the end of the file" in refusal(data[:-10])


def test_every_truncation_of_a_small_file_is_refused() -> None:
    data = tiff(image_tags(4, 4, t33550=(DOUBLE, [1.0, 1.0, 0.0])), data=bytes(16))
    for length in range(len(data)):
        refusal(data[:length])


def test_a_list_of_four_billion_tiles() -> None:
    tags = image_tags(4, 4, t322=16, t323=16, t324=(LONG, [8, 8], 2**32 - 1), t325=(LONG, [16]))
    assert "over the limit" in refusal(tiff(tags, data=bytes(16)))
    assert "past the end" in refusal(tiff({**tags, 324: (LONG, [8, 8], 2**24)}, data=bytes(16)))


def test_too_few_offsets() -> None:
    assert "3 strips or tiles but 1 offsets" in refusal(tiff(image_tags(4, 12, t278=4), data=bytes(48)))


def test_offsets_beyond_63_bits() -> None:
    tags = image_tags(4, 4, t273=(LONG8, [2**63 + 5]), t279=(LONG8, [16]))
    assert "not an offset or length" in refusal(tiff(tags, data=bytes(16), big=True))
    tags = image_tags(4, 4, t259=5, t273=(LONG8, [2**63 - 1]), t279=(LONG8, [2**63 - 1]))
    assert "past the end" in refusal(tiff(tags, data=bytes(16), big=True))


def test_grids_and_chunks_over_the_limits() -> None:
    assert "number of chunks" in refusal(tiff(image_tags(2**30, 2**30, t322=1, t323=1, t279=16), data=bytes(16)))
    huge = image_tags(2**20, 2**20, t259=8, t279=16)
    assert "bytes of a chunk" in refusal(tiff(huge, data=bytes(16)))
    assert "number of tags" in refusal(tiff(image_tags(4, 4), data=bytes(16)), Limits(tags=5))
    pages = tiff(*[image_tags(4, 4)] * 9, data=bytes(16))
    assert "number of directories" in refusal(pages, Limits(images=8))
    assert "past the limit" in refusal(pages, Limits(header_bytes=64))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"t256": 0}, "0 x 4"),
        ({"t277": 0}, "0 samples"),
        ({"t258": (SHORT, [0])}, "0 bits"),
        ({"t284": 3}, "planar configuration 3"),
        ({"t322": 0, "t323": 16}, "tiles are 0 x 16"),
        ({"t259": 65535}, "compression 65535"),
        ({"t277": 2, "t258": (SHORT, [8, 16])}, "samples differ"),
        ({"t258": (SHORT, [24]), "t339": 6}, "no NumPy type"),
        ({"t273": None}, "has no offsets"),
        ({"t273": 0}, "no offset"),
        ({"t273": (DOUBLE, [8.0])}, "not an integer type"),
        ({"t256": (DOUBLE, [4.0])}, "tag 256 takes 8 bytes"),
        ({"t259": 6}, "old-style JPEG"),
        ({"t262": 6, "t277": 3, "t258": (SHORT, [8] * 3), "t284": 2, "t530": (SHORT, [2, 2])}, "planar YCbCr"),
    ],
)
def test_directories_that_make_no_sense(change: dict, reason: str) -> None:
    message = refusal(tiff(image_tags(4, 4, **change), data=bytes(16)))
    assert reason in message or "not an integer type" in message


def test_hostile_metadata_are_refused() -> None:
    bomb = b"""<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]>
    <GDALMetadata><Item name="x">&b;</Item></GDALMetadata>"""
    assert "forbidden XML" in refusal(tiff(image_tags(4, 4, t42112=(2, bomb)), data=bytes(16)))


def test_an_old_jpeg_whose_stream_holds_only_tables() -> None:
    tags = image_tags(8, 8, t259=6, t273=40, t279=60, t513=8, t514=20)
    assert "has no JPEG stream" in refusal(tiff(tags, data=bytes(100)))


def test_tags_out_of_order_are_reported() -> None:
    """As GDAL does: the number of a tag may be damaged, and then its meaning is lost."""
    data = bytearray(tiff(image_tags(4, 4, t42113=(2, b"7\0")), data=bytes(16)))
    assert len(scan_bytes(bytes(data))) == 1
    where = data.index(struct.pack("<HH", 42113, 2))
    data[where : where + 2] = struct.pack("<H", 42113 & 0xFF)
    names, refused = kept(bytes(data))
    assert names == ["0/data"]
    assert refused == ["image 0: its tags are not in ascending order, so that some may be damaged or missing"]
