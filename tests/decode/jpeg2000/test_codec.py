"""JPEG 2000 tiles are decoded from bare tile-parts exactly as other decoders see the whole file, at every level."""

import base64
import shutil
import subprocess
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
import rasterio

from periplus.decode import prepare
from periplus.errors import DecodeError, FormatError
from periplus.limits import Limits
from periplus.testing.formats import jpeg2000 as j2ks
from periplus.testing.formats.jpeg2000 import found, read
from periplus.testing.mutants import byte_mutants


def peer(data: bytes) -> np.ndarray:
    values = imagecodecs.jpeg2k_decode(data)
    return values[None] if values.ndim == 2 else np.moveaxis(values, -1, 0)


@pytest.mark.parametrize("name", j2ks.LAYOUTS)
def test_full_resolution_is_what_openjpeg_sees(name: str) -> None:
    data = j2ks.layout(name)
    assert np.array_equal(read(data, found(data)[0]), peer(data))


@pytest.mark.parametrize("name", [name for name in j2ks.LAYOUTS if name.startswith("parts")])
@pytest.mark.parametrize("listed", [False, True])
def test_interleaved_tile_parts_are_put_together(name: str, listed: bool) -> None:
    data = j2ks.interleaved(j2ks.layout(name))
    data = j2ks.tlm(data) if listed else data
    items = found(data)
    assert items[0].refs.part is not None
    assert int(items[0].refs.part.max()) == 3
    assert np.array_equal(read(data, items[0]), j2ks.picture())
    # Lower levels leave the last tile-parts alone.
    assert [len(item.refs) for item in items] == [24, 18, 12, 6]


@pytest.mark.parametrize("name", [n for n in j2ks.LAYOUTS if "odd" not in n and n != "plt-precincts"])
def test_levels_are_what_gdal_reads_as_overviews(name: str, tmp_path: Path) -> None:
    data = j2ks.layout(name)
    path = tmp_path / "a.jp2"
    path.write_bytes(data)
    items = found(data)
    slow = name in ("pcrl", "cprl", "layers-lrcp")
    assert [item.array.name for item in items] == [f"{n}/data" for n in range(1 if slow else 4)]
    with rasterio.open(path) as raster:
        factors = raster.overviews(1)
    for level, factor in enumerate(factors, 1):
        assert factor == 2**level
        if not slow:
            with rasterio.open(path, overview_level=level - 1) as raster:
                assert np.array_equal(read(data, items[level]), raster.read())
    assert factors


@pytest.mark.skipif(shutil.which("opj_decompress") is None, reason="opj_decompress is not installed")
@pytest.mark.parametrize(
    "name", ["untiled", "tiled-odd", "parts-precincts", "lossy", "layers-rpcl", "tiled-plt", "plt-precincts"]
)
def test_levels_are_what_opj_decompress_gives(name: str, tmp_path: Path) -> None:
    data = j2ks.layout(name)
    (tmp_path / "a.j2k").write_bytes(data)
    items = found(data)
    assert len(items) == 4
    for item in items[1:]:
        command = ["opj_decompress", "-i", "a.j2k", "-o", "a.ppm", "-r", str(item.array.level)]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
        with rasterio.open(tmp_path / "a.ppm") as raster:
            assert np.array_equal(read(data, item), raster.read())


@pytest.mark.parametrize("dtype", ["i2", "u2", "u1"])
@pytest.mark.parametrize("bands", [1, 2, 5])
def test_types_and_bands(dtype: str, bands: int) -> None:
    values = j2ks.picture(bands, dtype, 80, 96)
    data = j2ks.made(values, blockxsize=48, blockysize=48)
    item = found(data)[0]
    assert item.array.dtype == values.dtype
    assert np.array_equal(read(data, item), values)


@pytest.mark.parametrize("bits", [1, 4, 12, 24])
def test_odd_depths_widen(bits: int) -> None:
    dtype = np.uint8 if bits <= 8 else np.uint16 if bits <= 16 else np.uint32
    values = np.random.default_rng(bits).integers(0, 2**bits, (40, 56)).astype(dtype)
    data = imagecodecs.jpeg2k_encode(values, level=0, bitspersample=bits, codecformat="j2k", reversible=True)
    item = found(data)[0]
    assert item.array.dtype == dtype
    assert np.array_equal(read(data, item)[0], values)


@pytest.mark.parametrize("tiles", [{}, {"blockxsize": 64, "blockysize": 48}])
def test_subsampled_chroma_becomes_colours_as_elsewhere(tiles: dict[str, int]) -> None:
    data = j2ks.made(j2ks.picture(3, "u1", 96, 128), YCBCR420="YES", **tiles)
    assert data[42:51] == b"\x07\x01\x01\x07\x02\x02\x07\x02\x02"
    items = found(data)
    assert len(items) == 3
    assert np.array_equal(read(data, items[0]), peer(data))


@pytest.mark.parametrize("main", [True, False])
def test_packet_headers_may_lie_elsewhere(main: bool) -> None:
    data = j2ks.packed(j2ks.layout("parts-precincts"), main=main)
    assert np.array_equal(peer(data), j2ks.picture())
    for stream in (data, j2ks.interleaved(data) if not main else data):
        items = found(stream)
        assert len(items) == 1
        assert len(items[0].array.encodings) == (6 if main else 1)
        assert np.array_equal(read(stream, items[0]), j2ks.picture())


@pytest.mark.parametrize("codec", ["J2K", "JP2"])
def test_components_of_different_depth(codec: str) -> None:
    values = j2ks.picture(4, "u1", 96, 96).copy()
    values[3] = np.random.default_rng(0).integers(0, 2, values[3].shape)
    options = {"1BIT_ALPHA": "YES", "photometric": "RGB", "ALPHA": "YES", "CODEC": codec}
    data = j2ks.made(values, blockxsize=48, blockysize=48, **options)
    at = data.index(b"\xff\x4f\xff\x51") + 42
    assert data[at : at + 12 : 3] == b"\x07\x07\x07\x00"
    values[3] *= 255 if codec == "JP2" else 1  # an alpha channel, as GDAL gives it; a bare codestream has none
    for item in found(data)[:1]:
        assert np.array_equal(read(data, item), values)


def test_damaged_chunks_give_decode_errors_and_nothing_else() -> None:
    data = j2ks.made(j2ks.picture(1, "u1", 64, 64), PROGRESSION="RPCL", TILEPARTS="RESOLUTIONS")
    refused = 0
    for item in found(data)[:2]:
        array, refs = item.array, item.refs
        raw = data[refs.offset[0] : refs.offset[0] + refs.length[0]]
        decoder = prepare(array.encodings[0], chunks=array.chunks, dtype=array.dtype, limits=Limits())
        for mutant in byte_mutants(raw, seed=3, count=250):
            try:
                assert decoder(mutant, valid=array.chunks).shape == array.chunks
            except DecodeError:
                refused += 1
    assert refused > 60


@pytest.mark.parametrize("name", [n for n in j2ks.LAYOUTS if n.startswith("parts") or n == "lossy"])
def test_tile_parts_that_lack_packets_are_not_filled_with_zeros(name: str) -> None:
    data = j2ks.layout(name)
    _, parts = j2ks.split(data)
    mine = [part.data for part in parts if part.tile == 1]
    for item in found(data):
        array = item.array
        decoder = prepare(array.encodings[0], chunks=array.chunks, dtype=array.dtype, limits=Limits())
        needed = 4 - array.level
        whole = decoder(b"".join(mine[:needed]), valid=array.chunks).copy()
        assert np.array_equal(whole, decoder(b"".join(mine), valid=array.chunks))
        for raw in (*(b"".join(mine[:count]) for count in range(needed)), b"".join(mine[:needed])[:-13]):
            with pytest.raises(DecodeError):
                decoder(raw, valid=array.chunks)


def test_parts_of_two_tiles_are_not_one_chunk() -> None:
    data = j2ks.layout("tiled")
    array = found(data)[0].array
    _, parts = j2ks.split(data)
    decoder = prepare(array.encodings[0], chunks=array.chunks, dtype=array.dtype, limits=Limits())
    assert np.array_equal(decoder(parts[4].data, valid=array.chunks), j2ks.picture()[:, 128:, 128:256])
    for raw in (b"", parts[0].data + parts[1].data, parts[0].data[:-1], parts[0].data[:13], b"\xff\x90" * 40):
        with pytest.raises(DecodeError):
            decoder(raw, valid=array.chunks)


def test_mutated_main_headers_are_refused_before_the_decoder_runs() -> None:
    data = j2ks.made(j2ks.picture(1, "u1", 64, 64))
    item = found(data)[0]
    raw = data[item.refs.offset[0] : item.refs.offset[0] + item.refs.length[0]]
    header = base64.b64decode(item.array.encodings[0].codecs[0]["configuration"]["main_header"])
    name = item.array.encodings[0].codecs[0]["name"]
    refused = 0
    for mutant in byte_mutants(header, seed=5, count=500):
        codec = {"name": name, "configuration": {"main_header": base64.b64encode(mutant).decode("ascii")}}
        try:
            decoder = prepare((codec,), chunks=item.array.chunks, dtype=item.array.dtype, limits=Limits())
            decoder(raw, valid=item.array.chunks)
        except (FormatError, DecodeError):
            refused += 1
    assert refused > 150


def test_settings_are_checked() -> None:
    item = found(j2ks.layout("untiled"))[0]
    good = item.array.encodings[0].codecs[0]
    for change in (
        {"main_header": None},
        {"main_header": "***"},
        {"main_header": ""},
        {"resolution_level": -1},
        {"resolution_level": 4},
        {"resolution_level": True},
        {"levels": 2},
    ):
        codec = {"name": good["name"], "configuration": {**good["configuration"], **change}}
        with pytest.raises(FormatError):
            prepare((codec,), chunks=item.array.chunks, dtype=item.array.dtype, limits=Limits())
    with pytest.raises(FormatError):
        prepare((good,), chunks=(1, *item.array.chunks[1:]), dtype=item.array.dtype, limits=Limits())
    with pytest.raises(FormatError):
        prepare((good,), chunks=item.array.chunks, dtype=np.dtype("i2"), limits=Limits())
