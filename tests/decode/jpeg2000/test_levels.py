"""Every level of a JPEG 2000 file is what other builds of other readers make of the file at that resolution."""

import base64
import itertools
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
import rasterio

from periplus.testing.formats import jpeg2000 as j2ks
from periplus.testing.indexes import inline_list

ORDERS = ["LRCP", "RLCP", "RPCL", "PCRL", "CPRL"]
FORMS = {
    "plain": lambda data: data,
    "interleaved": j2ks.interleaved,
    "listed": lambda data: j2ks.tlm(j2ks.interleaved(data)),
}
SIZE = {"blockxsize": 64, "blockysize": 64}
OPENJPEG = shutil.which("opj_decompress")


def forms(parts: str, reversible: str) -> tuple[str, ...]:
    """A single tile-part cannot be interleaved; how tile-parts are found does not depend on the wavelet."""
    if reversible == "NO":
        return ("plain",)
    return ("plain", "listed") if parts == "DISABLED" else tuple(FORMS)


def expected_levels(order: str, layers: str, packets: str) -> int:
    """Full resolution only, where resolutions do not come first and packets have no lengths."""
    first = order in ("RLCP", "RPCL") or (order == "LRCP" and layers == "100")
    return 3 if first or packets == "YES" else 1


@pytest.mark.parametrize(
    ("parts", "layers", "packets"),
    [
        *itertools.product(("DISABLED", "RESOLUTIONS"), ("100", "10,40,100"), ("NO", "YES")),
        ("LAYERS", "10,40,100", "NO"),
        ("LAYERS", "10,40,100", "YES"),
        ("COMPONENTS", "100", "NO"),
        ("COMPONENTS", "10,40,100", "YES"),
    ],
)
@pytest.mark.parametrize("order", ORDERS)
def test_orders_by_tile_parts_by_layers_by_lists(order: str, parts: str, layers: str, packets: str) -> None:
    values = j2ks.picture(3, "u1", 96, 128)
    for reversible in ("YES", "NO") if layers != "100" else ("YES",):
        options = {"PROGRESSION": order, "TILEPARTS": parts, "QUALITY": layers, "PLT": packets}
        if parts == "RESOLUTIONS":
            options |= {"PRECINCTS": "{32,32},{16,16}", "SOP": "YES", "EPH": "YES"}
        data = j2ks.made(values, REVERSIBLE=reversible, **SIZE, **options)
        expected = [j2ks.pillow(data, level) for level in range(3)]
        if layers == "100":
            assert np.array_equal(expected[0], values)
        for form in forms(parts, reversible):
            stream = FORMS[form](data)
            items = j2ks.found(stream)
            assert len(items) == expected_levels(order, layers, packets)
            for item in items:
                assert j2ks.alike(j2ks.read(stream, item), expected[item.array.level], exact=reversible == "YES")
            if len(items) == 3 and (packets == "YES" or parts == "RESOLUTIONS"):
                sizes = [int(item.refs.length.sum()) for item in items]
                assert sizes[1] < 0.55 * sizes[0]
                assert sizes[2] < 0.55 * sizes[1]


@pytest.mark.skipif(OPENJPEG is None, reason="opj_decompress is not installed")
@pytest.mark.parametrize("order", ORDERS)
def test_orders_against_the_reference_program(order: str, tmp_path: Path) -> None:
    values = j2ks.picture(3, "u1", 144, 160)
    for number, options in enumerate(
        (
            {"QUALITY": "10,40,100", **SIZE},
            {"TILEPARTS": "RESOLUTIONS", "REVERSIBLE": "NO", "QUALITY": "30", **SIZE},
            {"PRECINCTS": "{64,64},{32,32}", "blockxsize": 96, "blockysize": 80},
            {"QUALITY": "20,60", "REVERSIBLE": "NO"},
        )
    ):
        data = j2ks.interleaved(j2ks.made(values, PROGRESSION=order, PLT="YES", **options))
        path = tmp_path / f"{number}.j2k"
        path.write_bytes(data)
        items = j2ks.found(data)
        assert len(items) > 1
        for item in items:
            picture = path.with_suffix(f".{item.array.level}.ppm")
            command = [OPENJPEG, "-i", path, "-o", picture, "-r", str(item.array.level)]
            subprocess.run(command, check=True, capture_output=True)
            with rasterio.open(picture) as raster:
                assert j2ks.alike(j2ks.read(data, item), raster.read(), exact="REVERSIBLE" not in options)


@pytest.mark.parametrize("order", ["LRCP", "PCRL"])
def test_orders_against_overviews_of_gdal(order: str, tmp_path: Path) -> None:
    values = j2ks.picture(4, "u2", 256, 320)
    data = j2ks.made(values, PROGRESSION=order, PLT="YES", QUALITY="10,100", blockxsize=128, blockysize=128)
    path = tmp_path / "a.j2k"
    path.write_bytes(data)
    items = j2ks.found(data)
    assert len(items) == 4
    with rasterio.open(path) as raster:
        factors = raster.overviews(1)
    assert factors
    for level, _ in enumerate(factors, 1):
        with rasterio.open(path, overview_level=level - 1) as raster:
            assert np.array_equal(j2ks.read(data, items[level]), raster.read())


def test_packets_of_a_level_and_no_others_are_referenced() -> None:
    data = j2ks.made(j2ks.picture(3, "u1", 96, 128), PROGRESSION="PCRL", PLT="YES", **SIZE)
    items = j2ks.found(data)
    for item in items[1:]:
        # One range a component: its lower resolutions are neighbours.
        refs = item.refs
        assert refs.inline is not None
        assert refs.inline.held.tolist() == [True, False, False, False] * 4
        assert item.array.encodings[0].codecs[0]["configuration"]["resolution_level"] == 0
    exact = j2ks.found(j2ks.made(j2ks.picture(3, "u1", 96, 128), PROGRESSION="RLCP", TILEPARTS="RESOLUTIONS", **SIZE))
    for level in (1, 2):
        # Tile-parts have 14 bytes more each, for every resolution; ours has 14 once, inline.
        assert items[level].refs.length.sum() == exact[level].refs.length.sum() - 4 * 14 * (3 - level)


@pytest.mark.parametrize("order", ["LRCP", "RLCP", "RPCL"])
def test_a_level_is_one_range_where_resolutions_come_first(order: str) -> None:
    data = j2ks.made(j2ks.picture(3, "u1", 96, 128), PROGRESSION=order, PLT="YES", **SIZE)
    for item in j2ks.found(data):
        assert len(item.refs) == 4
        assert item.refs.part is None
        assert item.refs.inline is None


def test_tiles_that_do_not_divide_by_a_level_have_none_from_packets() -> None:
    data = j2ks.made(j2ks.picture(3, "u1", 96, 128), PROGRESSION="PCRL", PLT="YES", blockxsize=66, blockysize=66)
    assert len(j2ks.found(data)) == 2


@pytest.mark.parametrize(
    "options",
    [
        {"PROGRESSION": "PCRL", "PLT": "YES"},
        {"PROGRESSION": "LRCP", "PLT": "YES", "QUALITY": "10,40,100"},
        {"PROGRESSION": "RPCL", "TILEPARTS": "RESOLUTIONS"},
    ],
)
def test_levels_are_read_by_the_other_implementation_of_the_codec(options: dict[str, str]) -> None:
    theirs = pytest.importorskip("aws.osml.io._io", reason="osml-imagery-io is not installed")
    data = j2ks.made(j2ks.picture(3, "u1", 128, 192), **SIZE, **options)
    for item in j2ks.found(data):
        refs, settings = item.refs, item.array.encodings[0].codecs[0]["configuration"]
        side = 64 >> item.array.level
        rows = np.flatnonzero((refs.chunk[1] == 1) & (refs.chunk[2] == 2))
        inline = inline_list(refs)
        raw = b"".join(inline[r] or data[refs.offset[r] : refs.offset[r] + refs.length[r]] for r in rows.tolist())
        header = base64.b64decode(settings["main_header"])
        found = theirs.decode_jpeg2000(raw, header, settings["resolution_level"])
        expected = j2ks.pillow(data, item.array.level)[:, side : 2 * side, 2 * side : 3 * side]
        assert np.array_equal(np.asarray(found).reshape(expected.shape), expected)


def test_a_level_may_have_fewer_bytes_than_the_tile_has_packets() -> None:
    # Every packet is one byte that says it is empty; the finest resolution has most of them.
    values = np.full((1, 256, 511), 128, np.uint8)
    options = {"PROGRESSION": "RPCL", "TILEPARTS": "RESOLUTIONS", "RESOLUTIONS": 3, "PRECINCTS": "{16,16},{128,128}"}
    data = bytearray(j2ks.made(values, blockxsize=256, blockysize=256, **options))
    # Of two columns one has values, and the second tile begins between them: packets must be told apart.
    struct.pack_into(">8I", data, 8, 2 * 511, 256, 0, 0, 511, 256, 0, 0)
    data[42:45] = b"\x07\x02\x01"
    items = j2ks.found(bytes(data))
    assert [item.array.shape for item in items] == [(1, 256, 511), (1, 128, 256), (1, 64, 128)]
    for item in items:
        assert (j2ks.read(bytes(data), item) == 128).all()
    assert items[1].refs.length.max() < 256
