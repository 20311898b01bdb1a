"""Reading TIFFs of every flavour: pixels equal what GDAL and tifffile hold, windows equal slices of the whole."""

import io
from functools import cache

import numpy as np
import pytest
import rasterio
from rasterio.transform import from_origin
from rasterio.windows import Window

from periplus.errors import DecodeError, PeriplusError, StaleError
from periplus.fetch import Fetch
from periplus.model import Catalog, Encoding, Refs
from periplus.testing.formats import tiff as tiffs
from periplus.testing.servers.http import RangeServer

KEY = (slice(None), slice(50, 9, -3), slice(31, 66))


@pytest.mark.parametrize("name", tiffs.names())
def test_every_flavour_is_read_whole_and_in_windows(tiff_shelf, name):
    case = tiffs.case(name)
    shelf = tiff_shelf(case.data)
    for array, expected in case.arrays.items():
        got = shelf.read(array)
        assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
        if case.lossy:
            # GDAL's own JPEG decoder is another one than ours: chroma differs by a few levels.
            assert np.abs(got.astype("f8") - expected).mean() < 2
        else:
            np.testing.assert_array_equal(got, expected)
        np.testing.assert_array_equal(shelf.read(array, KEY, workers=1), got[KEY])


@pytest.fixture(scope="module")
def cog(tmp_path_factory):
    """A COG with overviews whose tiles do not fit the image."""

    @cache
    def make(**creation):
        rng = np.random.default_rng(3)
        smooth = rng.integers(0, 4000, (3, 30, 40)).repeat(20, 1).repeat(20, 2)
        values = (smooth + rng.integers(0, 30, smooth.shape)).astype("u2")
        path = tmp_path_factory.mktemp("cog") / "scene.tif"
        profile = {
            "driver": "COG", "width": 800, "height": 600, "count": 3, "dtype": "uint16", "blocksize": 128,
            "crs": "EPSG:32633", "transform": from_origin(500_000, 5_000_000, 10, 10), "nodata": 0,
            "compress": "deflate", "overview_resampling": "average",
        } | creation  # fmt: skip
        with rasterio.open(path, "w", **profile) as target:
            target.write(values)
        return path

    return make


@pytest.mark.parametrize(
    "creation",
    [
        {"compress": "deflate"},
        {"compress": "zstd", "predictor": 2},
        {"compress": "none"},
        {"compress": "lzw", "predictor": 2, "bigtiff": "yes"},
    ],
    ids=lambda c: c["compress"],
)
def test_windows_of_a_cog_equal_those_of_rasterio_at_every_level(cog, tiff_shelf, creation):
    path = cog(**creation)
    shelf = tiff_shelf(path)
    rng = np.random.default_rng(5)
    for level in range(3):
        with rasterio.open(path, **({"overview_level": level - 1} if level else {})) as dataset:
            height, width = dataset.shape
            for _ in range(6):
                top, left = int(rng.integers(0, height - 1)), int(rng.integers(0, width - 1))
                rows, columns = int(rng.integers(1, height - top + 1)), int(rng.integers(1, width - left + 1))
                expected = dataset.read(window=Window(left, top, columns, rows))
                key = (slice(None), slice(top, top + rows), slice(left, left + columns))
                np.testing.assert_array_equal(shelf.read(f"{level}/data", key), expected)


def test_a_raster_by_bbox_and_resolution_equals_rasterio_on_its_overview(cog, tiff_shelf):
    path = cog()
    shelf = tiff_shelf(path)
    box = (501_666.0, 4_996_111.0, 505_000.0, 4_998_888.0)
    raster = shelf.raster(bbox=box, resolution=25)
    with rasterio.open(path, overview_level=0) as dataset:
        window = rasterio.windows.from_bounds(*box, dataset.transform)
        top, left = int(np.floor(window.row_off)), int(np.floor(window.col_off))
        bottom = int(np.ceil(window.row_off + window.height))
        right = int(np.ceil(window.col_off + window.width))
        whole = Window(left, top, right - left, bottom - top)
        np.testing.assert_array_equal(raster.values, dataset.read(window=whole))
        np.testing.assert_allclose(raster.transform, tuple(dataset.window_transform(whole))[:6])
        np.testing.assert_allclose(raster.bbox, dataset.window_bounds(whole))
        assert raster.crs == str(dataset.crs)
        assert raster.nodata == dataset.nodata
    assert raster.level == 1
    np.testing.assert_array_equal(raster.masked().mask, raster.values == 0)


def test_a_stack_by_hand_reads_files_of_different_encodings(kit, tmp_path):
    images, sources, found = [], [], []
    for number, options in enumerate(
        ({"compression": "deflate"}, {"big": True}, {"compression": "lzw", "predictor": True})
    ):
        image = tiffs.picture(f"step {number}", "i2")
        path = tmp_path / f"{number}.tif"
        path.write_bytes(tiffs.written(image, **options))
        with Fetch() as fetch:
            sources.append(fetch.run(fetch.head(str(path))))
        arrays, refs = kit.scanned(sources[-1], path.read_bytes())
        found.append((arrays["0/data"], refs["0/data"]))
        images.append(image)
    first = found[0][0]
    array = first.renamed(
        "0/data", dims=("time", *first.dims), shape=(3, *first.shape), chunks=(1, *first.chunks),
        encodings=tuple(Encoding(_deeper(a.encodings[0].codecs)) for a, _ in found),
    )  # fmt: skip
    counts = [len(r) for _, r in found]
    refs = Refs(
        chunk=np.concatenate(
            [np.vstack([np.full((1, len(r)), t, np.int32), r.chunk]) for t, (_, r) in enumerate(found)], 1
        ),
        offset=np.concatenate([r.offset for _, r in found]),
        length=np.concatenate([r.length for _, r in found]),
        file=np.repeat(np.arange(3, dtype=np.int32), counts),
        encoding=np.repeat(np.arange(3, dtype=np.uint16), counts),
    )
    shelf = kit.Shelf(Catalog(arrays={"0/data": array}), {"0/data": refs}, kit.files_of(sources))
    np.testing.assert_array_equal(shelf.read("0/data"), np.stack(images))
    np.testing.assert_array_equal(shelf.read("0/data", (slice(None, None, -1), 1, 40, slice(5, 80, 7))),
                                  np.stack(images)[::-1, 1, 40, 5:80:7])  # fmt: skip


def _deeper(pipeline):
    """The pipeline of a file's (bands, y, x) chunk for the same chunk behind a time dimension."""
    return tuple(
        {**codec, "configuration": {"order": [0, *(d + 1 for d in codec["configuration"]["order"])]}}
        if codec["name"] == "transpose"
        else codec
        for codec in pipeline
    )


@pytest.fixture
def web(cog, tiff_shelf):
    path = cog(compress="zstd", predictor=2)
    with RangeServer({"scene.tif": path.read_bytes()}) as server, Fetch() as fetch:
        shelf = tiff_shelf(path, url=server.url + "/scene.tif", fetch=fetch)
        server.log.clear()
        shelf.server, shelf.body = server, path.read_bytes()
        yield shelf


def test_a_window_over_http_takes_few_requests_and_few_bytes(web):
    key = (slice(None), slice(150, 350), slice(150, 600))
    with rasterio.open(io.BytesIO(web.body)) as dataset:
        expected = dataset.read(window=Window(150, 150, 450, 200))
    np.testing.assert_array_equal(web.read("0/data", key), expected)
    lengths = web.table.refs("0/data", [(0, 1), (1, 3), (1, 5)]).length
    gets = [r for r in web.server.log if r.method == "GET"]
    assert len(gets) <= 2 < len(lengths)
    assert sum(r.sent for r in gets) < 2.5 * lengths.sum()


def test_a_replaced_scene_is_stale_and_never_read_as_the_old_one(web):
    web.server.files["scene.tif"] = web.body[:-1] + b"x"
    with pytest.raises(StaleError):
        web.read("0/data", (0, 0, 0))


def test_a_damaged_chunk_is_a_decode_error_with_its_place(cog, tiff_shelf, tmp_path):
    body = bytearray(cog(compress="deflate").read_bytes())
    shelf = tiff_shelf(bytes(body))
    refs = shelf.table.refs("0/data")
    at, length = int(refs.offset[7]), int(refs.length[7])
    body[at : at + length] = bytes(length)
    damaged = tiff_shelf(bytes(body))
    with pytest.raises(DecodeError) as caught:
        damaged.read("0/data")
    assert (caught.value.url, caught.value.offset) == (str(damaged.path), at)


def test_flipped_bits_in_pixels_give_our_errors_or_values_but_nothing_else(cog, tiff_shelf):
    body = bytearray(cog(compress="deflate", predictor=2).read_bytes())
    first = int(tiff_shelf(bytes(body)).table.refs("0/data").offset[0])
    rng = np.random.default_rng(11)
    refused = 0
    for _ in range(30):
        mutant = bytearray(body)
        for at in rng.integers(first, len(body), 8):
            mutant[at] ^= 1 << int(rng.integers(0, 8))
        try:
            shelf = tiff_shelf(bytes(mutant))
            values = shelf.read("0/data", (slice(None), slice(0, 350), slice(0, 350)))
        except PeriplusError:
            refused += 1
        else:
            assert values.shape == (3, 350, 350)
    assert 0 < refused < 30
