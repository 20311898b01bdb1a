"""periplus read: windows into .npy, .tif and .png, equal to what rasterio reads."""

import io
import subprocess
import sys

import numpy as np
import pytest
import rasterio
from PIL import Image

BOX = "500600,4198000,501500,4199000"


@pytest.fixture
def truth(archive):
    with rasterio.open(archive / "scene_20230210.tif") as image:
        yield image


def test_npy_holds_all_dimensions(index, truth, periplus, tmp_path):
    done = periplus("read", index, "--bbox", BOX, "-o", tmp_path / "out.npy")
    assert (done.code, done.out) == (0, "")
    assert "4 × 3 × 100 × 90 (time, bands, y, x) uint16" in done.err
    values = np.load(tmp_path / "out.npy")
    np.testing.assert_array_equal(values[1], truth.read()[:, 100:200, 60:150])


def test_tif_is_a_cut_out_of_the_source(index, truth, periplus, tmp_path):
    target = tmp_path / "out.tif"
    assert periplus("read", index, "--bbox", BOX, "--time", "2023-02-10", "-o", target).code == 0
    with rasterio.open(target) as image:
        np.testing.assert_array_equal(image.read(), truth.read()[:, 100:200, 60:150])
        assert image.crs == truth.crs
        assert image.bounds == (500600, 4198000, 501500, 4199000)
        assert image.nodata == 0
        assert image.descriptions == ("red", "green", "blue")
        assert image.scales == (0.5, 0.5, 0.25)


def test_bands_are_chosen_by_name_with_their_own_scale(index, truth, periplus, tmp_path):
    target = tmp_path / "out.tif"
    assert periplus("read", index, "--bands", "blue,1", "--time", "2023-02-10", "-o", target).code == 0
    with rasterio.open(target) as image:
        np.testing.assert_array_equal(image.read(), truth.read([3, 1]))
        assert image.descriptions == ("blue", "red")
        assert image.scales == (0.25, 0.5)


def test_a_box_in_longitude_and_latitude(index, periplus, tmp_path):
    box = "15.002,37.94,15.01,37.945"
    assert (
        periplus("read", index, "--bbox", box, "--crs", "EPSG:4326", "--time", "2023-02", "-o", tmp_path / "o.tif").code
        == 0
    )
    with rasterio.open(tmp_path / "o.tif") as image:
        assert image.crs.to_epsg() == 32633
        assert 60 < image.width < 80


@pytest.mark.parametrize("option", [("--resolution", "20"), ("--max-size", "200")])
def test_a_coarser_level_is_read_where_it_is_enough(index, archive, periplus, tmp_path, option):
    assert periplus("read", index, *option, "--time", "2023-02-10", "-o", tmp_path / "out.tif").code == 0
    with (
        rasterio.open(archive / "scene_20230210.tif", OVERVIEW_LEVEL=0) as truth,
        rasterio.open(tmp_path / "out.tif") as image,
    ):
        np.testing.assert_array_equal(image.read(), truth.read())
        assert image.res == (20, 20)


def test_a_window_counts_pixels(index, truth, periplus, tmp_path):
    target = tmp_path / "out.tif"
    done = periplus("read", index, "--array", "0/data", "--window", "1:2,1:3,10:50,20:90", "-o", target)
    assert done.code == 0
    with rasterio.open(target) as image:
        np.testing.assert_array_equal(image.read(), truth.read([2, 3])[:, 10:50, 20:90])
        assert image.bounds == (500200, 4199500, 500900, 4199900)
        assert image.descriptions == ("green", "blue")


def test_png_shows_the_window_and_says_how(index, truth, periplus, tmp_path):
    done = periplus("read", index, "--time", "2023-02-10", "-o", tmp_path / "out.png")
    assert done.code == 0
    assert "2nd to 98th percentile" in done.err
    image = np.asarray(Image.open(tmp_path / "out.png"))
    assert image.shape == (256, 320, 4)
    assert (image[:20, :30, 3] == 0).all()
    assert (image[20:, 30:, 3] == 255).all()
    order = np.argsort(truth.read(1)[100])
    assert (np.diff(image[100, order, 0].astype(int)) >= 0).all()


def test_png_with_a_stretch_of_ones_own(index, truth, periplus, tmp_path):
    done = periplus(
        "read", index, "--time", "2023-02-10", "--bands", "2", "--stretch", "0,4000", "-o", tmp_path / "o.png"
    )
    assert "0 is black, 4000 is white (--stretch)" in done.err
    image = np.asarray(Image.open(tmp_path / "o.png"))
    expected = truth.read(2)[50] / 4000 * 255
    assert np.abs(image[50, 40:, 0] - expected[40:]).max() <= 0.51


def test_a_file_is_read_and_queried_as_its_own_index(archive, truth, periplus, tmp_path):
    scene = archive / "scene_20230210.tif"
    assert periplus("read", scene, "--bbox", BOX, "-o", tmp_path / "out.npy").code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), truth.read()[:, 100:200, 60:150])
    done = periplus("query", scene, "--level", 1, "--format", "csv")
    assert done.code == 0
    assert done.out.count(str(scene)) == 6


def test_a_dash_is_npy_on_stdout(index, truth):
    command = [
        sys.executable,
        "-m",
        "periplus.cli",
        "read",
        str(index),
        "--bbox",
        BOX,
        "--time",
        "2023-02-10",
        "-o",
        "-",
    ]
    done = subprocess.run(command, capture_output=True, check=True)
    np.testing.assert_array_equal(np.load(io.BytesIO(done.stdout))[0], truth.read()[:, 100:200, 60:150])


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        (["-o", "out.jpg"], "usage", "must end in"),
        (
            ["-o", "out.png"],
            "usage",
            "4 steps along time, and an image has one: add for example --time 2023-05-01T00:00:00",
        ),
        (["--array", "0/data", "--window", "0:5,0:5", "-o", "out.png"], "usage", "with --array and --window"),
        (["--bands", "1,2", "--time", "2023-02", "-o", "out.png"], "usage", "choose some with --bands"),
        (["--bands", "pink", "-o", "out.npy"], "missing", "pink"),
        (["--bands", "7", "-o", "out.npy"], "missing", "band 7"),
        (["--time", "1999", "-o", "out.npy"], "missing", "1999"),
        (["--bbox", "0,0,1,1", "-o", "out.npy"], "missing", "does not intersect"),
        (["--bbox", "15,37,16,38", "-o", "out.npy"], "missing", "these look like degrees: pass --crs, for example"),
        (["--point", "4199000,500900", "-o", "out.npy"], "missing", "are x and y exchanged?"),
        (["--point", "37.94,15.005", "--crs", "EPSG:4326", "-o", "out.npy"], "missing", "are x and y exchanged?"),
        (["--point", "1,2,3", "-o", "out.npy"], "usage", "not two numbers x,y"),
        (["--point", "1,2", "--bbox", "0,0,1,1", "-o", "out.npy"], "usage", "--point and --bbox"),
        (["--bbox", "1,1,1,1", "-o", "out.npy"], "usage", "use --point"),
        (["--level", "7", "-o", "out.npy"], "usage", "there is no level 7; the levels are 0, 1"),
        (["--level", "1", "--max-size", "9", "-o", "out.npy"], "usage", "--level cannot be combined with --resolution"),
        (["--level", "1", "--array", "0/data", "-o", "out.npy"], "usage", "0/data is level 0, and --level is 1"),
        (["--window", "0:5,0:5", "-o", "out.npy"], "usage", "--array"),
        (["--array", "0/data", "--window", "0:5,0:999", "-o", "out.npy"], "usage", "ends past"),
        (
            ["--array", "0/data", "--window", "0:5,0:5", "--bands", "1", "-o", "out.npy"],
            "usage",
            "cannot be combined with --bands",
        ),
        (["--crs", "EPSG:0", "--bbox", "0,0,1,1", "-o", "out.npy"], "usage", "EPSG:0"),
        (["--crs", "EPSG:4326", "-o", "out.npy"], "usage", "--crs has no effect without --bbox"),
        (["--stretch", "0,9", "-o", "out.npy"], "usage", "--stretch has no effect on .npy"),
        (["--stretch", "0,9", "--time", "2023-02", "-o", "out.tif"], "usage", "--stretch has no effect on .tif"),
        (["--resolution", "-3", "-o", "out.npy"], "usage", "positive"),
        (
            ["-o", "no/such/folder/out.npy"],
            "missing",
            "the folder to write to does not exist (no/such/folder/out.npy)\n",
        ),
        (["--array", "1/dat", "-o", "out.npy"], "missing", "this index has data"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(index, periplus, tmp_path, monkeypatch, arguments, kind, words):
    monkeypatch.chdir(tmp_path)
    done = periplus("read", index, *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"periplus: {kind}: ")
    assert words in done.err
    assert len(done.err.splitlines()) == 1
    assert not list(tmp_path.glob("*out*"))


def test_a_point_is_the_pixel_that_contains_it(index, truth, periplus, tmp_path):
    assert periplus("read", index, "--point", "500605,4198995", "-o", tmp_path / "out.npy").code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy")[1], truth.read()[:, 100:101, 60:61])


def test_a_level_is_read_by_its_number(index, archive, periplus, tmp_path):
    assert periplus("read", index, "--level", "1", "--time", "2023-02-10", "-o", tmp_path / "out.tif").code == 0
    with (
        rasterio.open(archive / "scene_20230210.tif", OVERVIEW_LEVEL=0) as truth,
        rasterio.open(tmp_path / "out.tif") as image,
    ):
        np.testing.assert_array_equal(image.read(), truth.read())


def test_bands_named_by_numbers_are_chosen_by_quoted_names(archive, periplus, tmp_path):
    scene = archive / "scene_20230210.tif"
    with rasterio.open(scene, "r+") as image:
        image.descriptions = ("3", "2", "1")
        truth = image.read()
    done = periplus("read", scene, "--bands", "3", "-o", tmp_path / "out.npy")
    assert done.code == 2
    assert "name in double quotes, --bands '\"3\"' or '\"1\"'" in done.err
    assert periplus("read", scene, "--bands", '"3",2', "-o", tmp_path / "out.npy").code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), truth[[0, 1]])


def test_a_misspelled_image_names_those_like_it(archive, periplus, tmp_path):
    for number in range(20):
        (archive / f"a{number}.tif").write_bytes((archive / "scene_20230101.tif").read_bytes())
    (archive / "geo.tif").write_bytes((archive / "scene_20230101.tif").read_bytes())
    target = tmp_path / "all.parquet"
    assert periplus("index", archive, "--arrange", "collect", "-o", target, "-q").code == 0
    done = periplus("read", target, "--array", "goe", "-o", tmp_path / "out.npy")
    assert "no image or array 'goe'; this index has geo/data, " in done.err
    done = periplus("read", target, "--bbox", "15,37,16,38", "-o", tmp_path / "out.npy")
    assert "none of the 25 images are in that box and time; these look like degrees" in done.err
    done = periplus("read", target, "--point", "4199000,500900", "-o", tmp_path / "out.npy")
    assert "are x and y exchanged?" in done.err
