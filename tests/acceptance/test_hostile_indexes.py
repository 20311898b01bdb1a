"""Hostile indexes, opened and read as a user would: refused, soon, and nothing they point at is touched."""

import os
import sys
import zlib
from pathlib import Path

import imagecodecs
import numpy as np
import pytest

import periplus
from periplus.cli.app import run
from periplus.limits import MIB
from periplus.testing.formats import tiff as tiffs
from periplus.testing.servers.http import Fault, RangeServer
from periplus.testing.tamper import change_column, change_sources, tamper

FORMS = ("index.parquet", "index")
SCENE = "le-classic-tiles-chunky-zstd-p1"
TILE_CODEC = "https://awslabs.github.io/osml-imagery-io/codecs/tiff-tile"
OPENED: list[str] = []
"""Every file this process opened, since the list was last emptied."""


def _watch(event: str, arguments: tuple) -> None:
    if event == "open" and isinstance(arguments[0], str | bytes):
        OPENED.append(os.fsdecode(arguments[0]))


sys.addaudithook(_watch)


@pytest.fixture
def home(tmp_path) -> Path:
    """A folder with a scene in it; beside it, outside, a canary that is a scene as well."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "a.tif").write_bytes(tiffs.case(SCENE).data)
    (tmp_path / "canary.tif").write_bytes(tiffs.case(SCENE).data)
    return folder


@pytest.fixture
def canary(home):
    with RangeServer({"canary.tif": tiffs.case(SCENE).data, "home/a.tif": tiffs.case(SCENE).data}) as running:
        yield running


@pytest.fixture(params=FORMS)
def index(request, home) -> Path:
    periplus.index(home / "a.tif", to=home / request.param).close()
    return home / request.param


def untouched(home: Path, canary: RangeServer) -> bool:
    secret = os.path.realpath(home.parent / "canary.tif")
    return not canary.log and not any(os.path.realpath(path) == secret for path in OPENED)


def uses(url: str | Path) -> list:
    """The ways a user might touch the sources of an index."""
    import xarray as xr

    def engine() -> None:
        with xr.open_dataset(str(url), engine="periplus") as dataset:
            dataset.load()

    def reads(use) -> None:
        with periplus.open(url) as opened:
            use(opened)

    return [
        lambda: reads(lambda opened: opened["0/data"][...]),
        lambda: reads(lambda opened: opened["0/data"][0, 0, 0]),
        lambda: reads(lambda opened: opened.read(max_size=10)),
        engine,
    ]


def reaching(home: Path, canary: RangeServer) -> dict[str, str]:
    secret = home.parent / "canary.tif"
    (home / "link.tif").symlink_to(secret)
    (home / "up").symlink_to(home.parent)
    return {
        "absolute": str(secret),
        "file url": f"file://{secret}",
        "dots": "../canary.tif",
        "dots in the middle": "x/../../canary.tif",
        "encoded dots": "%2e%2e/canary.tif",
        "link": "link.tif",
        "folder that is a link": "up/canary.tif",
        "host": f"{canary.url}/canary.tif",
        "host with a name": f"http://me:pass@127.0.0.1:{canary.port}/canary.tif",
        "host in decimal": f"http://2130706433:{canary.port}/canary.tif",
        "no scheme": f"//127.0.0.1:{canary.port}/canary.tif",
        "bucket": "s3://bucket/canary.tif",
        "memory": "memory://canary.tif",
        "backslashes": "..\\canary.tif",
        "device": "/dev/zero",
        "process": "/proc/self/environ",
    }


def test_the_forger_forges_nothing_by_himself(index, home):
    """A forged index that says the same is read; so refusals are about what was changed."""
    change_sources(index, "a.tif")
    with periplus.open(index) as opened:
        np.testing.assert_array_equal(opened["0/data"][...], tiffs.case(SCENE).arrays["0/data"])


WAYS = [
    "absolute", "file url", "dots", "dots in the middle", "encoded dots", "link", "folder that is a link", "host",
    "host with a name", "host in decimal", "no scheme", "bucket", "memory", "backslashes", "device", "process",
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_a_local_index_accesses_nothing_outside_its_folder(way, index, home, canary, capfd):
    change_sources(index, reaching(home, canary)[way])
    OPENED.clear()
    for use in uses(index):
        with pytest.raises(periplus.DeniedError):
            use()
    assert run(["read", str(index), "--array", "0/data", "-o", str(home / "out.npy")]) == 2
    assert capfd.readouterr().err.startswith("periplus: denied:")
    assert untouched(home, canary)
    assert not (home / "out.npy").exists()


@pytest.mark.parametrize("way", [way for way in WAYS if "link" not in way])
def test_a_remote_index_accesses_neither_files_nor_other_hosts(way, index, home, canary):
    change_sources(index, reaching(home, canary)[way])
    with RangeServer(home) as server:
        OPENED.clear()
        for use in uses(f"{server.url}/{index.name}"):
            with pytest.raises(periplus.DeniedError):
                use()
        assert not any(request.path == "/a.tif" for request in server.log)
    assert untouched(home, canary)


def test_a_remote_index_is_not_led_away_by_a_redirect(index, home, canary):
    with RangeServer(home) as server:
        server.faults["/a.tif"] = [Fault(kind="redirect", times=-1, location=f"{canary.url}/canary.tif")]
        OPENED.clear()
        for use in uses(f"{server.url}/{index.name}"):
            with pytest.raises(periplus.DeniedError):
                use()
    assert untouched(home, canary)


# --- lies about bytes and shapes -------------------------------------------------------------------------------------


def changed(name: str, value: int):
    return lambda index: tamper(index, rows=change_column(name, lambda values: [value] * len(values)))


def described(**changes):
    def change(document: dict) -> None:
        document["arrays"]["0/data"].update(changes)

    return lambda index: tamper(index, document=change)


def unknown_size(index: Path) -> Path:
    """Nothing is known of the file, and the row wants a terabyte of it."""
    tamper(index, files=change_column("size", lambda sizes: [None] * len(sizes)))
    return tamper(index, rows=change_column("length", lambda values: [1 << 40] * len(values)))


def million(index: Path) -> Path:
    """The first row a million times: a few kilobytes more."""
    return tamper(index, rows=lambda table: table.take([0] * 10**6))


BYTES = [{"name": "bytes", "configuration": {"endian": "little"}}]
TILE = {
    "compression": 8, "bits_per_sample": 16, "samples_per_pixel": 3, "photometric": 1, "planar_config": 1,
    "predictor": 2, "tile_width": 32, "tile_height": 32, "sample_format": 1, "jpeg_tables": None,
}  # fmt: skip
NO_ORDER = {"name": "transpose", "configuration": {"order": [9, 9, 9]}}


def tile(**changes):
    return described(encodings=[[{"name": TILE_CODEC, "configuration": {**TILE, **changes}}]])


LIES = {
    "an offset of 2^63 - 1": changed("offset", 2**63 - 1),
    "a negative offset": changed("offset", -1),
    "a length of 2^63 - 1": changed("length", 2**63 - 1),
    "a negative length": changed("length", -(2**63)),
    "a length past the end": changed("length", 1 << 40),
    "a length past the end of nobody knows what": unknown_size,
    "a chunk outside the grid": changed("y_chunk", 1000),
    "a negative chunk": changed("x_chunk", -1),
    "the same chunk again and again": changed("y_chunk", 0),
    "a million rows in a small file": million,
    "more rows than chunks": described(shape=[3, 32, 32]),
    "a shape of 2^64": described(shape=[2**64, 2**64, 2**64]),
    "a negative shape": described(shape=[3, -70, 90]),
    "a shape of fractions": described(shape=[3, 70.5, 90]),
    "chunks of nothing": described(chunks=[3, 0, 32]),
    "chunks of a terabyte": described(shape=[2**20, 2**20, 3], chunks=[2**20, 2**20, 3]),
    "nine dimensions": described(dims=list("abcdefghi"), shape=[1] * 9, chunks=[1] * 9),
    "objects": described(dtype="object"),
    "a type that runs code": described(dtype="__import__('os')"),
    "a codec nobody knows": described(encodings=[[{"name": "pickle"}]]),
    "a codec by its path": described(encodings=[[*BYTES, {"name": "numcodecs.pickles.Pickle"}]]),
    "codecs in the wrong order": described(encodings=[[{"name": "zstd"}, *BYTES]]),
    "no codecs": described(encodings=[]),
    "codecs that are none": described(encodings="zstd"),
    "a tile of 2^31": tile(tile_width=2**31),
    "a tile of nothing": tile(tile_width=0),
    "a tile that does not say": tile(compression=None),
    "a tile of another type": tile(sample_format=3),
    "an order that is none": described(encodings=[[NO_ORDER, *BYTES]]),
    "a newer version": lambda index: tamper(index, document=lambda document: {**document, "version": 99}),
    "a document that is none": lambda index: tamper(index, document=lambda _: b"\xff\xfe{"),
    "a document 10,000 deep": lambda index: tamper(index, document=lambda _: b"[" * 10_000),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_a_wrong_index_is_refused_before_its_sources_are_read(lie, index, home, bounded):
    LIES[lie](index)
    OPENED.clear()
    refused = pytest.raises((periplus.FormatError, periplus.LimitError, periplus.StaleError))
    with bounded(), refused, periplus.open(index) as opened:
        opened["0/data"][...]
    assert str(home / "a.tif") not in OPENED


def test_an_index_of_vast_shape_opens_and_gives_single_pixels_only(index, bounded):
    shape, chunks = [3, 2**30, 2**30], [3, 32, 32]
    described(shape=shape, chunks=chunks)(index)
    with bounded(memory=50 * MIB), periplus.open(index) as opened:
        array = opened["0/data"]
        assert array.shape == tuple(shape)
        assert array[0, -1, -1] == 0
        assert array[0, 0, 0] == tiffs.case(SCENE).arrays["0/data"][0, 0, 0]
        for key in (..., np.s_[0], np.s_[0, :, 0], np.s_[:, : 2**20, : 2**20]):
            with pytest.raises(periplus.LimitError):
                array[key]


def test_more_chunks_than_anyone_can_plan_are_refused(index, bounded):
    described(shape=[3, 2**16, 2**16], chunks=[1, 1, 1])(index)
    with bounded(memory=50 * MIB), periplus.open(index) as opened, pytest.raises(periplus.LimitError):
        opened["0/data"][...]


BOMBS = {
    "zstd": (lambda: imagecodecs.zstd_encode(bytes(64 * MIB)), [*BYTES, {"name": "zstd"}]),
    "zlib": (lambda: zlib.compress(bytes(64 * MIB), 1), [*BYTES, {"name": "numcodecs.zlib"}]),
    "gzip": (lambda: zlib_gzip(bytes(64 * MIB)), [*BYTES, {"name": "gzip"}]),
    "blosc": (lambda: imagecodecs.blosc_encode(bytes(64 * MIB), level=9), [*BYTES, {"name": "blosc"}]),
    "lz4": (lambda: imagecodecs.lz4_encode(bytes(64 * MIB), header=True), [*BYTES, {"name": "numcodecs.lz4"}]),
}


def zlib_gzip(data: bytes) -> bytes:
    packer = zlib.compressobj(1, wbits=31)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize("codec", BOMBS)
def test_a_chunk_that_decodes_to_more_than_declared_is_a_decode_error(codec, tmp_path, bounded):
    make, codecs = BOMBS[codec]
    bomb = make()
    (tmp_path / "a.tif").write_bytes(tiffs.case("le-uint8-1").data.ljust(len(bomb) + 1, b"\0"))
    index = tmp_path / "index.parquet"
    periplus.index(tmp_path / "a.tif", to=index).close()
    (tmp_path / "a.tif").write_bytes(bomb)

    def known(table):
        import pyarrow as pa

        table = change_column("size", lambda sizes: [len(bomb)] * len(sizes))(table)
        return table.set_column(
            table.schema.get_field_index("last_modified"),
            "last_modified",
            pa.nulls(len(table), pa.timestamp("us", "UTC")),
        )

    def one(table):
        return change_column("length", lambda v: [len(bomb)])(change_column("offset", lambda v: [0])(table.slice(0, 1)))

    tamper(index, files=known, rows=one)
    described(encodings=[codecs])(index)
    with bounded(memory=64 * MIB), periplus.open(index) as opened, pytest.raises(periplus.DecodeError) as caught:
        opened["0/data"][:, :32, :32]
    assert caught.value.url == str(tmp_path / "a.tif")
