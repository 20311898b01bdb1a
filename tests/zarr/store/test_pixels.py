"""Every archive reads through the store as other decoders read it: all TIFF flavours, NITF, JPEG 2000, DTED."""

import numpy as np
import pytest
import rasterio
import zarr
from affine import Affine
from rasterio.merge import merge
from rasterio.windows import Window

import periplus
from periplus.testing.formats import dted as dteds
from periplus.testing.formats import jpeg2000 as j2ks
from periplus.testing.formats import nitf as nitfs
from periplus.testing.formats import tiff as tiffs
from periplus.zarr.description.metadata import CODECS

pytestmark = [
    # What zarr-python says of every deflate stream: its v3 name is that of numcodecs.
    pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification"),
]
GROUPS = 3


def opened(path, **options):
    index = periplus.index(path, **options)
    return index, zarr.open_group(index.store(), mode="r")


def close(found, wanted, name):
    """Lossy decoders differ by a little."""
    difference = np.abs(found.astype(float) - wanted.astype(float))
    assert difference.max() <= 12, name
    assert difference.mean() < 1.5, name


@pytest.mark.parametrize("group", range(GROUPS))
def test_flavours_of_tiff_give_the_values_they_were_made_of(group, tmp_path):
    """Every third one: all are read by the tests of `read`, whose decoders these are."""
    kinds = set()
    for name in tiffs.names()[::3][group::GROUPS]:
        case = tiffs.case(name)
        path = tmp_path / "a.tif"
        path.write_bytes(case.data)
        index = periplus.index(path)
        store = index.store()
        tree = zarr.open_group(store, mode="r")
        for array, wanted in case.arrays.items():
            found = tree[array][...]
            assert found.dtype == wanted.dtype, (name, array)
            kinds.add((store.layout.leaves[array].kind, store.layout.leaves[array].raw))
            if case.lossy:
                np.testing.assert_array_equal(found, index[array][...], err_msg=name)
                close(found, wanted, name)
            else:
                np.testing.assert_array_equal(found, wanted, err_msg=f"{name} {array}")
    assert ("standard", True) in kinds
    assert ("imagery", False) in kinds


@pytest.mark.parametrize("codecs", CODECS)
def test_values_are_the_same_whichever_codecs_are_allowed(codecs, tmp_path):
    for name in ("be-classic-strips-chunky-deflate-p2", "le-big-tiles-planar-zstd-p1", "be-float64-planar-lzw-p3",
                 "deflate-strips", "uint12-big-endian", "lerc-float32", "png-tiles", "be-int16-3"):  # fmt: skip
        path = tmp_path / f"{name}.tif"
        path.write_bytes(tiffs.case(name).data)
        tree = zarr.open_group(periplus.index(path).store(codecs=codecs), mode="r")
        np.testing.assert_array_equal(tree["0/data"][...], tiffs.case(name).arrays["0/data"], err_msg=name)


COGS = {
    "deflate": {"compress": "deflate"},
    "zstd": {"compress": "zstd"},
    "zstd and predictor": {"compress": "zstd", "predictor": 2},
    "lzw": {"compress": "lzw"},
    "none": {"compress": "none"},
    "planar": {"compress": "deflate", "interleave": "band"},
    "big endian": {"compress": "zstd", "endianness": "BIG"},
    "sparse": {"compress": "zstd", "sparse_ok": True, "nodata": 9},
}


@pytest.mark.parametrize("name", COGS)
def test_levels_and_windows_of_a_pyramid_read_as_gdal_reads_them(name, tmp_path):
    image = tiffs.picture(name, "u2", (3, 333, 417))
    if name == "sparse":
        image[:, 64:200, :256] = 9
    path = tmp_path / "a.tif"
    path.write_bytes(
        tiffs.gdal_written(image, overviews=(2, 4), tiled=True, blockxsize=64, blockysize=64, **COGS[name])
    )
    index, tree = opened(path)
    if name == "sparse":
        assert len(index.table.refs("0/data")) < 6 * 7
    rng = np.random.default_rng(1)
    for level in range(3):
        with rasterio.open(path, **({"overview_level": level - 1} if level else {})) as file:
            array = tree[f"{level}/data"]
            np.testing.assert_array_equal(array[...], file.read())
            for _ in range(5):
                (top, bottom), (left, right) = (np.sort(rng.choice(n + 1, 2, replace=False)) for n in file.shape)
                wanted = file.read(window=Window(left, top, right - left, bottom - top))
                np.testing.assert_array_equal(array[:, top:bottom, left:right], wanted)


def test_jpeg_reads_as_gdal_decodes_it(tmp_path):
    image = tiffs.picture("jpeg", "u1", (3, 150, 170))
    path = tmp_path / "a.tif"
    path.write_bytes(tiffs.gdal_written(image, tiled=True, blockxsize=64, blockysize=64, compress="jpeg", quality=90))
    _, tree = opened(path)
    with rasterio.open(path) as file:
        close(tree["0/data"][...], file.read(), "jpeg")


def test_masks_lie_beside_their_image(tmp_path):
    image = tiffs.picture("mask", "u1", (3, 100, 130))
    mask = (tiffs.picture("m", "u1", (1, 100, 130))[0] > 90).astype("u1") * 255
    path = tmp_path / "a.tif"
    path.write_bytes(tiffs.gdal_written(image, mask=mask, compress="deflate", tiled=True, blockxsize=64, blockysize=64))
    _, tree = opened(path)
    with rasterio.open(path) as file:
        np.testing.assert_array_equal(tree["0/data"][...], file.read())
        np.testing.assert_array_equal(tree["0/mask"][0] * 255, file.dataset_mask())
    assert tree["0/mask"].metadata.dimension_names == ("mask_bands", "y", "x")


NITFS = ("plain-u16-B", "plain-f32-S", "masked-u8-P", "plain-u12-R", "masked-i16-S", "plain-c64-B")


@pytest.mark.parametrize("name", [f"{name}-tiles-{bands}" for name in NITFS for bands in (1, 3)])
def test_nitf_gives_the_values_it_was_made_of(name, tmp_path):
    item = nitfs.case(name)
    path = tmp_path / "a.ntf"
    path.write_bytes(nitfs.nitf(item))
    _, tree = opened(path)
    np.testing.assert_array_equal(tree["0/data"][...], nitfs.with_absent_blocks(item, item.pad or 0))


@pytest.mark.parametrize("driver", ["NITF", "GTiff"])
@pytest.mark.parametrize("height", [1300, 1301], ids=["even", "odd"])
def test_rows_cut_from_one_large_block_end_with_the_image(height, driver, tmp_path):
    path = tmp_path / "a"
    image = tiffs.picture("large", "u2", (1, height, 997))
    with rasterio.open(path, "w", driver=driver, count=1, height=height, width=997, dtype="uint16") as file:
        file.write(image)
    index = periplus.index(path)
    assert index["0/data"].array.grid == (1, 5, 1)
    for codecs in CODECS:
        store = index.store(codecs=codecs)
        assert store.layout.leaves["0/data"].kind == ("standard" if height == 1300 else "ours")
        np.testing.assert_array_equal(zarr.open_group(store, mode="r")["0/data"][...], image)


def test_interleaved_tiles_of_jpeg_2000_are_joined_and_have_levels(tmp_path):
    values = j2ks.picture(3, "u1", 300, 260)
    options = {
        "PROGRESSION": "RPCL",
        "TILEPARTS": "RESOLUTIONS",
        "RESOLUTIONS": 4,
        "blockxsize": 128,
        "blockysize": 128,
    }
    data = j2ks.made(values, **options)
    (tmp_path / "a.j2k").write_bytes(j2ks.interleaved(data))
    (tmp_path / "b.j2k").write_bytes(data)  # GDAL reads the tile-parts of one tile only where they lie together
    index, tree = opened(tmp_path / "a.j2k")
    assert index.table.refs("0/data").part.max() > 0
    np.testing.assert_array_equal(tree["0/data"][...], values)
    for level in (1, 2):
        with rasterio.open(tmp_path / "b.j2k", overview_level=level - 1) as file:
            np.testing.assert_array_equal(tree[f"{level}/data"][...], file.read())


def test_a_mosaic_of_elevation_cells_reads_as_gdal_reads_its_cells(tmp_path):
    surface = dteds.heights("surface", 121, 241)
    paths = []
    for column in range(2):
        paths.append(tmp_path / f"{column}.dt0")
        paths[-1].write_bytes(dteds.gdal_cell(surface[:, :, column * 120 : column * 120 + 121], west=column))
    _, tree = opened(paths, arrange="mosaic")
    with rasterio.open(paths[0]) as west, rasterio.open(paths[1]) as east:
        wanted = np.concatenate([west.read()[:, :, :-1], east.read()], axis=2)
    np.testing.assert_array_equal(tree["0/data"][...], wanted)


def test_a_mosaic_of_images_that_overlap_reads_as_rasterio_merges_them(tmp_path):
    paths = []
    for n, (row, column) in enumerate(((0, 0), (37, 50), (70, 11))):
        image = tiffs.picture(f"overlap {n}", "u2", (2, 90, 100))
        image[:, :15, :20] = 0
        where = {
            "crs": "EPSG:32633",
            "transform": Affine(10, 0, 5e5 + 10 * column, 0, -10, 5e6 - 10 * row),
            "nodata": 0,
        }
        paths.append(tmp_path / f"{n}.tif")
        paths[-1].write_bytes(
            tiffs.gdal_written(image, tiled=True, blockxsize=32, blockysize=32, compress="deflate", **where)
        )
    index = periplus.index(paths, arrange="mosaic", duplicates="first-valid")
    store = index.store()
    assert not store.layout.leaves["0/data"].raw
    wanted, _ = merge([str(path) for path in paths], nodata=0, method="first")
    np.testing.assert_array_equal(zarr.open_group(store, mode="r")["0/data"][...], wanted)


def test_files_of_a_stack_may_be_encoded_differently(tmp_path):
    wanted = []
    for month, options in enumerate([{"compress": "deflate"}, {"compress": "zstd"}, {"compress": "lzw", "predictor": 2},
                                     {"compress": "deflate", "endianness": "BIG"}], 1):  # fmt: skip
        image = tiffs.picture(f"stack {month}", "u2", (2, 90, 110))
        wanted.append(image)
        data = tiffs.gdal_written(image, tiled=True, blockxsize=32, blockysize=32, **options)
        (tmp_path / f"scene_2021{month:02}05.tif").write_bytes(data)
    index = periplus.index(tmp_path / "*.tif", arrange="stack")
    store = index.store()
    leaf = store.layout.leaves["0/data"]
    assert not leaf.raw
    assert leaf.why == "its chunks are encoded in 4 ways"
    np.testing.assert_array_equal(zarr.open_group(store, mode="r")["0/data"][...], np.stack(wanted))


def test_deflate_of_different_effort_is_one_encoding(tmp_path):
    for month, level in enumerate((1, 9), 1):
        image = tiffs.picture(f"effort {month}", "u2", (1, 64, 64))
        data = tiffs.gdal_written(image, tiled=True, blockxsize=32, blockysize=32, compress="deflate", zlevel=level)
        (tmp_path / f"scene_2021{month:02}05.tif").write_bytes(data)
    assert periplus.index(tmp_path / "*.tif", arrange="stack").store().layout.leaves["0/data"].raw
