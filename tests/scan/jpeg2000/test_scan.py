"""JPEG 2000 files are scanned from a few bytes; giant, damaged and unsupported ones are refused quickly."""

import os
import time

import imagecodecs
import numpy as np
import pytest
import rasterio
from rasterio.io import MemoryFile

from periplus.decode import prepare
from periplus.errors import FormatError, LimitError
from periplus.limits import MIB, Limits
from periplus.model import Found
from periplus.scan import sniff
from periplus.scan.jpeg2000 import scan as jpeg2000
from periplus.testing.formats import jpeg2000 as j2ks
from periplus.testing.mutants import byte_mutants
from periplus.testing.scans import watch_scan

MUTANTS = 200 * int(os.environ.get("PERIPLUS_FUZZ", "1"))
SMALL = Limits(chunk_bytes=256 * MIB)


def scanned(data: bytes, limits: Limits = SMALL, *, sized: bool = True) -> tuple[list[Found], list[int]]:
    """What a scan found, and the lengths it asked for."""
    return watch_scan(jpeg2000, data, limits, sized=sized)


def test_files_are_recognised_by_content() -> None:
    assert sniff(j2ks.layout("tiled")[:132]) is jpeg2000
    assert sniff(j2ks.layout("boxed")[:132]) is jpeg2000
    assert sniff(b"\xff\x4f\xff\x52" + bytes(128)) is not jpeg2000


@pytest.mark.parametrize("name", j2ks.LAYOUTS)
def test_few_bytes_are_requested(name: str) -> None:
    data = j2ks.layout(name)
    for sized in (True, False):
        found, asked = scanned(data, sized=sized)
        assert found[0].array.shape == (3, j2ks.HEIGHT, j2ks.WIDTH)
        assert sum(asked) < 40_000


def test_a_table_of_lengths_spares_the_hops() -> None:
    plain = j2ks.interleaved(j2ks.layout("parts-rpcl"))
    listed = j2ks.tlm(plain)
    (a, *_), hops = scanned(plain)
    (b, *_), few = scanned(listed)
    assert len(few) <= 2 < len(hops)
    assert np.array_equal(a.refs.length, b.refs.length)
    assert np.array_equal(a.refs.offset + len(listed) - len(plain), b.refs.offset)


def test_a_wrong_table_of_lengths_is_ignored() -> None:
    listed = bytearray(j2ks.tlm(j2ks.layout("parts-rpcl")))
    at = listed.index(b"\xff\x55") + 6
    first, second = listed[at : at + 6], listed[at + 6 : at + 12]
    right = scanned(bytes(listed))[0][0].refs
    listed[at : at + 12] = second + first
    found = scanned(bytes(listed))[0][0].refs
    assert np.array_equal(right.offset, found.offset)
    assert np.array_equal(right.length, found.length)


def test_a_last_tile_part_may_leave_its_length_open() -> None:
    data = bytearray(j2ks.layout("tiled"))
    last = data.rindex(b"\xff\x90\x00\x0a")
    data[last + 6 : last + 10] = bytes(4)
    found, _ = scanned(bytes(data))
    assert int(found[0].refs.offset[-1] + found[0].refs.length[-1]) == len(data)


def test_neighbouring_tile_parts_are_one_range() -> None:
    found, _ = scanned(j2ks.layout("parts-rpcl"))
    assert found[0].refs.part is None
    assert len(found[0].refs) == 6
    lengths = [int(item.refs.length.sum()) for item in found]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[3] < lengths[0] // 20


@pytest.mark.parametrize("name", ["tiled-plt", "plt-untiled", "plt-precincts"])
def test_packet_lengths_cut_tiles_for_lower_levels(name: str) -> None:
    found, asked = scanned(j2ks.layout(name))
    lengths = [int(item.refs.length.sum()) for item in found]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[3] < lengths[0] // 12
    assert sum(asked) < 40_000


def test_wrong_packet_lengths_are_ignored() -> None:
    data = bytearray(j2ks.layout("tiled-plt"))
    at = data.rindex(b"\xff\x58") + 6
    data[at] ^= 1
    lengths = {int(item.refs.length.sum()) for item in scanned(bytes(data))[0]}
    assert len(lengths) == 1


def test_tiles_that_shrink_unevenly_have_edges() -> None:
    found, _ = scanned(j2ks.layout("tiled-odd"))
    assert found[0].array.edges is None
    level = found[1].array
    assert level.shape == (3, 128, 192)
    assert level.edges is not None
    assert level.edges[1] == (39, 38, 39, 12)


@pytest.mark.parametrize("source", ["GeoJP2", "GMLJP2"])
def test_georeferencing_is_that_of_gdal(source: str) -> None:
    transform = rasterio.Affine(10, 0, 500_000, 0, -10, 4_100_000)
    other = "GMLJP2" if source == "GeoJP2" else "GeoJP2"
    data = j2ks.made(j2ks.picture(), CODEC="JP2", crs="EPSG:32633", transform=transform, **{other: "NO"})
    found, _ = scanned(data)
    for item in found:
        where = item.array.georeference
        assert where is not None
        assert where.crs == "EPSG:32633"
        assert where.transform == (10 << item.array.level, 0, 500_000, 0, -10 << item.array.level, 4_100_000)
    with MemoryFile(data) as memory, memory.open() as raster:
        assert raster.transform == transform


def test_palettes_are_reported_and_not_applied() -> None:
    plain = j2ks.made(j2ks.picture(1, "u1", 40, 40), CODEC="JP2")
    at = plain.index(b"jp2h") - 4
    size = int.from_bytes(plain[at : at + 4], "big")
    colours = b"".join(bytes([n, 255 - n, 7]) for n in range(256))
    box = (14 + len(colours)).to_bytes(4, "big") + b"pclr" + b"\x01\x00\x03\x07\x07\x07" + colours
    data = plain[:at] + (size + len(box)).to_bytes(4, "big") + plain[at + 4 : at + size] + box + plain[at + size :]
    array = scanned(data)[0][0].array
    assert array.shape == (1, 40, 40)
    assert array.attributes["colormap"] == [[n, 255 - n, 7] for n in range(256)]


def test_gmljp2_of_a_geographic_system_has_latitude_first() -> None:
    transform = rasterio.Affine(0.5, 0, 10, 0, -0.25, 40)
    data = j2ks.made(j2ks.picture(), CODEC="JP2", crs="EPSG:4326", transform=transform, GeoJP2="NO")
    where = scanned(data)[0][0].array.georeference
    assert where is not None
    assert where.crs == "EPSG:4326"
    assert where.transform == tuple(transform)[:6]


def test_gmljp2_with_zeros_in_it() -> None:
    transform = rasterio.Affine(60, 0, 440_720, 0, -60, 3_751_320)
    data = j2ks.made(j2ks.picture(), CODEC="JP2", crs="EPSG:26711", transform=transform, GeoJP2="NO")
    at = data.index(b"<gml:FeatureCollection") + len("<gml:FeatureCollection")
    assert data[at : at + 1] in (b"\n", b" ")
    data = data[:at] + b"\0" + data[at + 1 :]
    where = scanned(data)[0][0].array.georeference
    assert where is not None
    with MemoryFile(data) as memory, memory.open() as raster:
        assert where.transform == tuple(raster.transform)[:6]
        assert raster.crs == where.crs


@pytest.mark.parametrize(
    ("crs", "transform", "known"),
    [
        ("EPSG:32633", (0, 10, 500_000, 10, 0, 4_100_000), True),
        ("EPSG:32633", (10, 0, 500_000, 0, 10, 4_100_000), True),
        ("EPSG:32633", (10, 3, 500_000, 2, -10, 4_100_000), True),
        ("EPSG:2056", (10, 3, 500_000, 2, -10, 4_100_000), True),
        ("EPSG:3035", (10, 0, 500_000, 0, -10, 4_100_000), True),
        ("EPSG:3035", (10, 3, 500_000, 2, -10, 4_100_000), True),
        ("EPSG:3035", (0, 10, 500_000, 10, 0, 4_100_000), False),
        ("EPSG:2056", (10, 0, 500_000, 0, 10, 4_100_000), False),
    ],
)
def test_gmljp2_of_turned_grids_is_that_of_gdal_or_none(crs: str, transform: tuple[float, ...], known: bool) -> None:
    values = j2ks.picture(1, "u1", 40, 40)
    data = j2ks.made(values, CODEC="JP2", crs=crs, transform=rasterio.Affine(*transform), GeoJP2="NO")
    where = scanned(data)[0][0].array.georeference
    assert (where is not None) == known
    if where is not None:
        with MemoryFile(data) as memory, memory.open() as raster:
            assert where.transform == pytest.approx(tuple(raster.transform)[:6], abs=1e-9)


@pytest.mark.parametrize(("side", "tile"), [(2**31 - 1, None), (2**31 - 1, 1024), (2**32 - 1, None), (300_000, None)])
def test_giants_are_refused_at_once(side: int, tile: int | None) -> None:
    data = j2ks.giant(side, tile)
    start = time.process_time()
    with pytest.raises((FormatError, LimitError)):
        scanned(data, Limits())
    assert time.process_time() - start < 0.5


def test_what_no_decoder_supports_is_refused_as_such() -> None:
    with pytest.raises(FormatError, match="extends to 4294967295, and decoders support 2147483647 at most"):
        scanned(j2ks.giant(2**32 - 1), Limits())


def test_giant_tiles_are_indexed_where_a_lower_resolution_of_them_can_be_read() -> None:
    found, _ = scanned(j2ks.giant(60_000), Limits())
    assert [item.array.shape for item in found] == [(1, 60_000 >> n, 60_000 >> n) for n in range(4)]
    limits = Limits()
    for item, message in zip(found, ("bytes of a chunk", "while it is decoded"), strict=False):
        array = item.array
        with pytest.raises(LimitError, match=message):
            prepare(array.encodings[0], chunks=array.chunks, dtype=array.dtype, limits=limits)
    small = found[3].array
    prepare(small.encodings[0], chunks=small.chunks, dtype=small.dtype, limits=limits)


def test_what_we_do_not_read_is_named() -> None:
    data = bytearray(j2ks.layout("lossy"))
    data[42 + 3] = 3
    data[data.index(b"\xff\x52") + 8] = 1
    with pytest.raises(FormatError, match="colours of different depth"):
        scanned(bytes(data))
    data[42 + 3] = 0x87
    with pytest.raises(FormatError, match="with and without a sign, or of different steps, are coded together"):
        scanned(bytes(data))
    data = bytearray(j2ks.layout("tiled"))
    with pytest.raises(FormatError, match="past the end"):
        scanned(bytes(data[: len(data) // 2]))
    header, parts = j2ks.split(bytes(data))
    with pytest.raises(FormatError, match="5 of its 6 tiles"):
        scanned(header + b"".join(part.data for part in parts[:5]) + b"\xff\xd9")
    with pytest.raises(FormatError, match="out of order"):
        scanned(header + b"".join(part.data for part in (*parts, parts[0])) + b"\xff\xd9")


def test_untiled_files_of_another_encoder() -> None:
    values = j2ks.picture(1, "u2", 60, 70)[0]
    found, _ = scanned(imagecodecs.jpeg2k_encode(values, level=0, codecformat="jp2", reversible=True))
    assert found[0].array.shape == (1, 60, 70)
    assert found[0].array.dtype == np.uint16


@pytest.mark.fuzz
@pytest.mark.parametrize("name", ["tiled-tlm", "parts-precincts", "boxed", "geo"])
def test_mutants_give_only_our_errors(name: str) -> None:
    if name == "geo":
        values = j2ks.picture(1, "u1", 40, 40)
        data = j2ks.made(values, CODEC="JP2", crs="EPSG:32633", transform=rasterio.Affine(10, 0, 5, 0, -10, 4))
    else:
        options = {**j2ks.LAYOUTS[name], "blockxsize": 32, "blockysize": 32, "QUALITY": "20"}
        data = j2ks.made(j2ks.picture(1, "u1", 64, 64), **options)
    refused = total = 0
    for mutant in byte_mutants(data, seed=len(name), count=MUTANTS):
        total += 1
        start = time.process_time()
        try:
            found, asked = scanned(mutant, sized=total % 4 > 0)
        except (FormatError, LimitError):
            refused += 1
        else:
            assert sum(asked) <= 8 * len(mutant) + MIB
            for item in found if total % 4 else ():
                refs = item.refs
                assert (refs.chunk >= 0).all()
                assert (refs.chunk.max(axis=1) < np.array(item.array.grid)).all()
                assert refs.length.min() > 0
                assert int((refs.offset + refs.length).max()) <= len(mutant)
        assert time.process_time() - start < 10
    assert 0 < refused < total
