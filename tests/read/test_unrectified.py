"""Windows of images that only control points or RPCs locate: they hold all pixels that GDAL finds in the box."""

import json

import numpy as np
import pytest
import rasterio
from rasterio.control import GroundControlPoint
from rasterio.rpc import RPC
from rasterio.transform import GCPTransformer, RPCTransformer

import periplus
from periplus.cli.app import run

ROWS, COLUMNS = 400, 600
HEIGHT, HEIGHTS = 300.0, 250.0


def rpcs() -> RPC:
    """A camera that looks aside, so that heights move pixels, and not straight."""
    line = [0.001, 0.12, -1.05, 0.11, 0.01, 0.002, 0.003, -0.012, 0.008, 0.001] + [0.0005] * 10
    sample = [-0.002, 1.04, 0.13, -0.08, 0.015, 0.001, -0.002, 0.011, 0.006, 0.002] + [-0.0004] * 10
    below = [1.0, 0.01, -0.02, 0.005, 0.001] + [0.0002] * 15
    return RPC(
        line_off=ROWS / 2, line_scale=ROWS / 2, samp_off=COLUMNS / 2, samp_scale=COLUMNS / 2,
        lat_off=47.0, lat_scale=0.02, long_off=11.0, long_scale=0.03, height_off=HEIGHT, height_scale=HEIGHTS,
        line_num_coeff=line, line_den_coeff=below, samp_num_coeff=sample, samp_den_coeff=below[::1],
        err_bias=1.0, err_rand=0.5,
    )  # fmt: skip


def gcps(count: int) -> list[GroundControlPoint]:
    """Points on a turned and bent grid, in metres."""
    side = int(count**0.5)
    found = []
    for r in np.linspace(0, ROWS, side):
        for c in np.linspace(0, COLUMNS, side):
            x = 500_000 + 10 * c + 3 * r + (0.004 * c * r + 8 * np.sin(c / 90)) * (count > 4)
            y = 5_200_000 + 2 * c - 9 * r + 0.002 * r * r * (count > 4)
            found.append(GroundControlPoint(row=r, col=c, x=x, y=y, z=100.0))
    return found


def written(path, **georeference):
    values = np.arange(ROWS * COLUMNS, dtype=np.uint32).reshape(1, ROWS, COLUMNS)
    options = {"driver": "GTiff", "height": ROWS, "width": COLUMNS, "count": 1, "dtype": "uint32", "tiled": True}
    with rasterio.open(path, "w", blockxsize=128, blockysize=128, **options, **georeference) as file:
        file.write(values)
        file.build_overviews([2], rasterio.enums.Resampling.nearest)
    return values


KINDS = {
    "rpc": lambda: {"rpcs": rpcs()},
    "corners": lambda: {"gcps": gcps(4), "crs": "EPSG:32632"},
    "points": lambda: {"gcps": gcps(36), "crs": "EPSG:32632"},
}


def pixels(kind, xs, ys):
    """Rows and columns of places, by every transformer of GDAL that applies."""
    if kind == "rpc":
        makers = [RPCTransformer(rpcs(), rpc_height=HEIGHT + h * HEIGHTS) for h in (-1, -0.4, 0, 0.7, 1)]
    else:
        points = KINDS[kind]()["gcps"]
        makers = [GCPTransformer(points), GCPTransformer(points, tps=True)]
    for maker in makers:
        with maker as transformer:
            rows, columns = transformer.rowcol(xs, ys, op=lambda value: value)
            yield np.asarray(rows), np.asarray(columns)


@pytest.mark.parametrize("kind", KINDS)
def test_the_window_holds_every_pixel_that_gdal_finds_in_the_box(kind, tmp_path):
    values = written(tmp_path / "a.tif", **KINDS[kind]())
    index = periplus.index(tmp_path / "a.tif")
    xmin, ymin, xmax, ymax = index["0/data"].bbox
    rng = np.random.default_rng(len(kind))
    larger = []
    for share in rng.uniform(0.001, 0.6, (25, 2)):
        wide, high = share * (xmax - xmin, ymax - ymin)
        left, low = rng.uniform((xmin, ymin), (xmax - wide, ymax - high))
        box = (left, low, left + wide, low + high)
        xs, ys = np.meshgrid(np.linspace(box[0], box[2], 31), np.linspace(box[1], box[3], 31))
        found = list(pixels(kind, xs.ravel(), ys.ravel()))
        rows, columns = (np.concatenate(each) for each in zip(*found, strict=True))
        inside = (rows >= 0) & (rows < ROWS) & (columns >= 0) & (columns < COLUMNS)
        try:
            raster = index.read(bbox=box)
        except periplus.MissingError:
            assert not inside.any()
            continue
        top, first = divmod(int(raster.values.flat[0]), COLUMNS)
        bottom, last = top + raster.shape[-2], first + raster.shape[-1]
        np.testing.assert_array_equal(raster.values, values[:, top:bottom, first:last])
        if inside.any():
            assert top <= rows[inside].min()
            assert rows[inside].max() <= bottom
            assert first <= columns[inside].min()
            assert columns[inside].max() <= last
            hull = (np.ptp(rows[inside]) + 20) * (np.ptp(columns[inside]) + 20)
            larger.append(raster.values.size / hull)
        if kind == "rpc":
            assert raster.rpc["line_off"] == pytest.approx(ROWS / 2 - top)
            assert raster.rpc["samp_off"] == pytest.approx(COLUMNS / 2 - first)
        else:
            theirs = [(p.row - top, p.col - first, p.x, p.y, p.z) for p in KINDS[kind]()["gcps"]]
            np.testing.assert_allclose([(p.row, p.column, p.x, p.y, p.z) for p in raster.gcps], theirs)
    assert np.median(larger) < 2
    assert len(larger) > 15


@pytest.mark.parametrize("kind", KINDS)
def test_queries_info_and_reads_agree(kind, tmp_path, capfd):
    path = tmp_path / "a.tif"
    written(path, **KINDS[kind]())
    index = periplus.index(path)
    crs = "EPSG:4326" if kind == "rpc" else "EPSG:32632"
    xmin, ymin, xmax, ymax = box = index["0/data"].bbox
    middle = [(a + b) / 2 for a, b in ((xmin, xmax), (ymin, ymax))]
    inner = (*middle, middle[0] + (xmax - xmin) / 50, middle[1] + (ymax - ymin) / 50)
    assert run(["info", str(path), "--json"]) == 0
    info = json.loads(capfd.readouterr().out)["arrays"][0]
    assert (info["crs"], tuple(info["bbox"])) == (crs, pytest.approx(box))
    assert len(index.select(array="0/data", bbox=inner)) > 0
    raster = index.read(bbox=inner)
    assert (raster.crs, raster.transform, raster.rectified) == (crs, None, False)
    assert "not rectified" in repr(raster)
    assert "x" not in raster.coordinates
    assert 0 < raster.values.size < 0.1 * ROWS * COLUMNS
    assert index.read(bbox=inner, crs=crs).shape == raster.shape
    small = index.read(bbox=box, max_size=300)
    assert (small.level, small.shape) == (1, (1, ROWS // 2, COLUMNS // 2))
    for each, factor in ((index.read(bbox=box, max_size=100), 6), (small, 2)):
        if kind == "rpc":
            assert each.rpc["line_scale"] == pytest.approx(ROWS / 2 / factor)
        else:
            assert each.gcps[-1].row == pytest.approx(ROWS / factor)
    far = (xmax + 1, ymax + 1, xmax + 2, ymax + 2)
    assert len(index.select(array="0/data", bbox=far)) == 0
    with pytest.raises(periplus.MissingError, match="does not intersect 0/data, which covers"):
        index.read(bbox=far)
    with pytest.raises(periplus.FormatError, match="no transform, so a resolution cannot be used; use max_size"):
        index.read(bbox=inner, resolution=1.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by", ["bbox", "window"])
def test_the_command_line_writes_what_locates_the_pixels(kind, by, tmp_path, capfd):
    path, output = tmp_path / "a.tif", tmp_path / "b.tif"
    written(path, **KINDS[kind]())
    box = periplus.index(path)["0/data"].bbox
    chosen = ["--bbox", ",".join(map(repr, box))] if by == "bbox" else ["--array", "0/data", "--window", "40:90,30:99"]
    assert run(["read", str(path), *chosen, "-o", str(output)]) == 0
    assert "not rectified" in capfd.readouterr().err
    row, column = (0, 0) if by == "bbox" else (40, 30)
    with rasterio.open(output) as dataset:
        if kind == "rpc":
            assert dataset.crs is None
            assert dataset.rpcs.line_off == ROWS / 2 - row
            assert dataset.rpcs.samp_num_coeff == rpcs().samp_num_coeff
        else:
            points, crs = dataset.gcps
            assert crs.to_epsg() == 32632
            theirs = [(p.row - row, p.col - column, p.x, p.y, p.z) for p in KINDS[kind]()["gcps"]]
            np.testing.assert_allclose([(p.row, p.col, p.x, p.y, p.z) for p in points], theirs)


def test_polynomials_that_turn_around_give_the_whole_image(tmp_path):
    turning = rpcs()
    turning.line_den_coeff[3] = 1.5
    written(tmp_path / "a.tif", rpcs=turning)
    index = periplus.index(tmp_path / "a.tif")
    assert index.read(bbox=(10.999, 46.999, 11.0, 47.0)).shape == (1, ROWS, COLUMNS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_way_to_xarray_keeps_what_locates_the_pixels(kind, tmp_path):
    written(tmp_path / "a.tif", **KINDS[kind]())
    index = periplus.index(tmp_path / "a.tif")
    raster = index.read(bbox=index["0/data"].bbox)
    mapping = raster.to_xarray().coords["spatial_ref"].attrs
    assert ("rpc" in mapping, "gcps" in mapping) == (kind == "rpc", kind != "rpc")
