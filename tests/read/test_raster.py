"""Rasters: windows by bbox, resolution, time and bands, against slices of the same values in NumPy."""

from datetime import datetime

import numpy as np
import pytest
import rasterio
from affine import Affine

import periplus
from periplus.errors import FormatError, MissingError
from periplus.model import Catalog, Coordinate, Georeference, Refs
from periplus.read import RasterWindow

TIMES = np.array(["2021-01-15", "2021-02-15", "2021-03-15", "2021-03-16", "2021-04-15"], "M8[us]")
BASE = (10.0, 0.0, 500_000.0, 0.0, -10.0, 4_000_000.0)


def stretched(factor, base=BASE):
    a, b, c, d, e, f = base
    return a * factor, b * factor, c, d * factor, e * factor, f


@pytest.fixture
def pyramid(kit, tmp_path):
    """Levels of 80x60, 40x30 and 20x15 with 5 times and 3 bands; every level's values tell level and position."""

    def make(base=BASE, names=("0/data", "1/data", "2/data"), crs="EPSG:32633", **attributes):
        attributes = {"band_names": ["red", "green", "blue"], "_FillValue": 7, **attributes}
        arrays, refs, sources, values = {}, {}, [], {}
        for name in names:
            k = int(name.split("/")[-2])
            shape = (5, 3, 80 >> k, 60 >> k)
            arrays[name] = kit.raw_array(
                shape, (1, 3, 16, 16), name=name, dims=("time", "bands", "y", "x"), level=k, attributes=attributes,
                georeference=None if base is None else Georeference(crs=crs, transform=stretched(2**k, base)),
            )  # fmt: skip
            values[name] = kit.values_of(shape) * 10 + k
            body, rows = kit.raw_bytes(values[name], arrays[name], rng=np.random.default_rng(k))
            path = tmp_path / f"level-{len(sources)}.bin"
            path.write_bytes(body)
            refs[name] = Refs(chunk=rows.chunk, offset=rows.offset, length=rows.length, file=rows.file + len(sources))
            sources.append(kit.Source(url=str(path), size=len(body)))
        time = Coordinate(name="time", dims=("time",), values=TIMES)
        catalog = Catalog(arrays=arrays, coordinates={"time": time})
        shelf = kit.Shelf(catalog, refs, kit.files_of(sources))
        shelf.values = values
        return shelf

    return make


def test_without_questions_the_finest_level_is_read_whole(pyramid):
    shelf = pyramid()
    raster = shelf.raster()
    np.testing.assert_array_equal(raster.values, shelf.values["0/data"])
    assert (raster.array, raster.level, raster.dims) == ("0/data", 0, ("time", "bands", "y", "x"))
    assert (raster.transform, raster.crs) == (BASE, "EPSG:32633")
    assert raster.bbox == (500_000, 3_999_200, 500_600, 4_000_000)
    assert raster.bands == ("red", "green", "blue")
    assert raster.coordinates["time"].tolist() == TIMES.tolist()
    np.testing.assert_allclose(raster.coordinates["x"], 500_005 + 10 * np.arange(60))
    np.testing.assert_allclose(raster.coordinates["y"], 3_999_995 - 10 * np.arange(80))


def test_a_bbox_reads_the_pixels_it_touches_with_their_own_transform(pyramid):
    shelf = pyramid()
    raster = shelf.raster(bbox=(500_101, 3_999_500, 500_299, 3_999_755))
    np.testing.assert_array_equal(raster.values, shelf.values["0/data"][..., 24:50, 10:30])
    assert raster.bbox == (500_100, 3_999_500, 500_300, 3_999_760)


def test_a_south_up_image_reads_the_same_place(pyramid):
    shelf = pyramid(base=(10.0, 0.0, 500_000.0, 0.0, 10.0, 3_999_200.0))
    raster = shelf.raster(bbox=(500_000, 3_999_200, 500_050, 3_999_250))
    np.testing.assert_array_equal(raster.values, shelf.values["0/data"][..., :5, :5])
    assert raster.bbox == (500_000, 3_999_200, 500_050, 3_999_250)
    assert raster.coordinates["y"][0] == 3_999_205


def test_a_rotated_image_reads_the_bounds_of_the_polygon(pyramid):
    shelf = pyramid(base=(8.0, 6.0, 500_000.0, 6.0, -8.0, 4_000_000.0))
    raster = shelf.raster(bbox=(500_300, 3_999_900, 500_301, 3_999_901))
    a, b, c, d, e, f = raster.transform
    assert raster.values.shape[2:] == (2, 2) or max(raster.values.shape[2:]) <= 3
    west, south, east, north = raster.bbox
    assert west <= 500_300
    assert east >= 500_301
    assert south <= 3_999_900
    assert north >= 3_999_901
    assert (a, b, d, e) == (8.0, 6.0, 6.0, -8.0)
    column, row = np.linalg.solve([[8, 6], [6, -8]], [c - 500_000, f - 4_000_000]).round().astype(int)
    h, w = raster.values.shape[2:]
    np.testing.assert_array_equal(raster.values, shelf.values["0/data"][..., row : row + h, column : column + w])
    assert "x" not in raster.coordinates


def test_the_resolution_chooses_the_level(pyramid):
    shelf = pyramid()
    raster = shelf.raster(bbox=(500_100, 3_999_500, 500_300, 3_999_760), resolution=20)
    assert raster.array == "1/data"
    np.testing.assert_array_equal(raster.values, shelf.values["1/data"][..., 12:25, 5:15])
    assert shelf.raster(resolution=(40, 40.00001)).level == 2
    assert shelf.raster(resolution=39).level == 1
    assert shelf.raster(resolution=1).level == 0


def test_max_size_chooses_the_level_and_samples_below_the_coarsest(pyramid):
    shelf = pyramid()
    assert shelf.raster(max_size=80).level == 0
    assert shelf.raster(max_size=79).level == 1
    assert shelf.raster(max_size=10, bbox=(500_000, 3_999_900, 500_100, 4_000_000)).level == 0
    tiny = shelf.raster(max_size=7)
    assert tiny.level == 2
    np.testing.assert_array_equal(tiny.values, shelf.values["2/data"][..., 1::3, 1::3])
    assert tiny.transform == stretched(12)
    assert max(tiny.values.shape[2:]) <= 7
    single = shelf.raster(max_size=1)
    assert single.values.shape == (5, 3, 1, 1)


def test_a_level_may_be_named(pyramid):
    shelf = pyramid()
    assert shelf.raster(array="2/data").level == 2
    assert shelf.raster(array="2/data", resolution=20).level == 1
    assert shelf.raster(array="data").level == 0
    with pytest.raises(MissingError, match="this index has data"):
        shelf.raster(array="nothing")


def test_several_images_must_be_named(pyramid):
    shelf = pyramid(names=("a/0/data", "a/1/data", "b/0/data"))
    with pytest.raises(MissingError, match="a/data, b/data"):
        shelf.raster()
    assert shelf.raster(array="a/data", resolution=20).array == "a/1/data"


def test_a_mask_beside_the_only_image_is_no_second_image(pyramid):
    assert pyramid(names=("scene/0/data", "scene/1/data", "scene/1/mask")).raster().array == "scene/0/data"


def test_time_is_a_moment_a_period_or_a_range(pyramid):
    shelf = pyramid()
    for time, positions in (
        ("2021-03", [2, 3]),
        ("2021-03-16", [3]),
        (datetime(2021, 2, 15), [1]),
        (("2021-02", "2021-03"), [1, 2, 3]),
        (slice("2021-04", None), [4]),
    ):
        raster = shelf.raster(time=time, array="2/data")
        np.testing.assert_array_equal(raster.values, shelf.values["2/data"][positions])
        assert raster.coordinates["time"].tolist() == TIMES[positions].tolist()
    with pytest.raises(MissingError, match="2021-01-15"):
        shelf.raster(time="2022")


def test_bands_are_names_or_numbers_that_count_from_1(pyramid):
    shelf = pyramid()
    for bands, positions in (
        (2, 1),
        (np.int64(3), 2),
        ("green", 1),
        ([3, 1], [2, 0]),
        (["blue", "red"], [2, 0]),
        ([1, 2], [0, 1]),
    ):
        raster = shelf.raster(bands=bands, array="2/data")
        np.testing.assert_array_equal(raster.values, shelf.values["2/data"][:, positions])
        assert raster.values.ndim == len(raster.dims)
        assert raster.bands == tuple(np.array(["red", "green", "blue"])[np.atleast_1d(positions)].tolist())
    with pytest.raises(MissingError, match="red, green, blue"):
        shelf.raster(bands="nir")
    for number in (0, -1, 4):
        with pytest.raises(MissingError, match=f"0/data has no band {number}; it has 3, and bands count from 1"):
            shelf.raster(bands=number)
    with pytest.raises(TypeError, match=r"count from 1, or names, not 1\.5"):
        shelf.raster(bands=[1.5])


def test_all_questions_at_once(pyramid):
    shelf = pyramid()
    raster = shelf.raster(
        bbox=(500_100, 3_999_500, 500_300, 3_999_760), resolution=20, time="2021-03", bands=["blue", "red"]
    )
    np.testing.assert_array_equal(raster.values, shelf.values["1/data"][2:4][:, [2, 0], 12:25, 5:15])


def test_a_bbox_in_another_crs_is_brought_into_the_images_own(pyramid):
    asked = []

    def reproject(bbox, source, target):
        asked.append((bbox, source, target))
        return (500_100, 3_999_500, 500_300, 3_999_760)

    shelf = pyramid()
    raster = shelf.raster(bbox=(1, 2, 3, 4), crs="EPSG:4326", reproject_bbox=reproject)
    assert raster.values.shape[2:] == (26, 20)
    assert asked == [((1.0, 2.0, 3.0, 4.0), "EPSG:4326", "EPSG:32633")]
    shelf.raster(bbox=(500_100, 3_999_500, 500_300, 3_999_760), crs="EPSG:32633", reproject_bbox=reproject)
    assert len(asked) == 1
    with pytest.raises(FormatError, match="no CRS"):
        pyramid(crs=None).raster(bbox=(1, 2, 3, 4), crs="EPSG:4326", reproject_bbox=reproject)


def test_a_bbox_beside_the_image_is_missing_and_says_where_the_image_is(pyramid):
    with pytest.raises(MissingError, match="500000"):
        pyramid().raster(bbox=(0, 0, 1, 1))


@pytest.mark.parametrize(
    "question",
    [{"bbox": (2, 0, 1, 1)}, {"resolution": 0}, {"resolution": -1}, {"resolution": float("nan")}, {"max_size": 0}],
)
def test_senseless_questions_are_the_callers_mistake(pyramid, question):
    with pytest.raises(ValueError):
        pyramid().raster(**question)


def test_an_image_without_a_place_is_read_by_pixels(pyramid):
    raster = pyramid(base=None).raster(max_size=40)
    assert (raster.level, raster.transform, raster.crs) == (1, None, None)
    assert raster.bbox == (0, 0, 30, 40)
    assert "x" not in raster.coordinates


def test_a_raster_is_an_array(pyramid):
    raster = pyramid().raster(array="2/data")
    np.testing.assert_array_equal(np.asarray(raster), raster.values)
    assert np.asarray(raster) is raster.values
    assert np.array(raster, dtype="f8").dtype == np.float64
    assert "2/data" in repr(raster)


def test_masked_masks_nodata_whatever_its_kind():
    def raster(values, nodata, dims=("bands", "y", "x")):
        return RasterWindow(values=values, dims=dims, transform=None, crs=None, array="a", level=0, nodata=nodata)

    values = np.array([[[1, 2], [3, 1]], [[1, 2], [3, 1]]])
    assert raster(values, None).masked().mask.sum() == 0
    np.testing.assert_array_equal(raster(values, 1).masked().mask, values == 1)
    np.testing.assert_array_equal(raster(values, [1, 3]).masked().mask, np.stack([values[0] == 1, values[1] == 3]))
    holes = values.astype("f4")
    holes[0, 0, 0] = np.nan
    np.testing.assert_array_equal(raster(holes, float("nan")).masked().mask, np.isnan(holes))
    np.testing.assert_array_equal(raster(holes, [float("nan"), 3]).masked().mask[1], values[1] == 3)


def test_nodata_of_the_chosen_bands_is_kept(pyramid):
    shelf = pyramid(_FillValue=[1, 2, "NaN"])
    assert shelf.raster(array="2/data", bands=[2, 1]).nodata == [2, 1]
    assert np.isnan(shelf.raster(array="2/data").nodata[2])
    assert shelf.raster(array="2/data", bands=2).nodata == 2


def test_a_box_west_of_the_180th_meridian_meets_an_image_that_goes_on_to_the_east(pyramid):
    shelf = pyramid((0.25, 0.0, 170.0, 0.0, -0.25, 10.0), crs="EPSG:4326")
    raster = shelf.raster(bbox=(-178, 0, -177, 10), bands=1)
    np.testing.assert_array_equal(raster.values, shelf.values["0/data"][:, 0, :40, 48:52])
    assert raster.bbox == (182, 0, 183, 10)


def test_a_band_name_or_number_that_means_two_bands_is_refused(tmp_path):
    from periplus.cli.app import run

    image = np.stack([np.full((8, 8), n, "u1") for n in range(3)])
    for name, labels in (("numbers", ("0", "1", "2")), ("twice", ("a", "a", "b"))):
        with rasterio.open(
            tmp_path / f"{name}.tif", "w", driver="GTiff", count=3, height=8, width=8, dtype="uint8",
            transform=Affine(1, 0, 0, 0, -1, 8), crs="EPSG:32633",
        ) as file:  # fmt: skip
            file.write(image)
            file.descriptions = labels
    numbers = periplus.index(tmp_path / "numbers.tif")
    assert numbers.read(bands=["1"]).values.max() == 1
    assert numbers.read(bands=[1]).values.max() == 0
    numbers.write(tmp_path / "numbers.parquet")
    asked = ["read", str(tmp_path / "numbers.parquet"), "-o", str(tmp_path / "o.npy"), "--bands"]
    assert run([*asked, "1"]) == 2  # the first band, or the one named 1
    assert run([*asked, "3"]) == 0
    with pytest.raises(ValueError, match="several bands named 'a'; choose one by number: 1, 2"):
        periplus.index(tmp_path / "twice.tif").read(bands="a")
