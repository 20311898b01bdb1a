"""Band names and the attribute photometric describe the values that are returned, not those that are stored."""

from pathlib import Path

import imagecodecs
import numpy as np
import pytest
import rasterio
import xarray

import periplus
from periplus.model import Found
from periplus.scan.drive import scan_bytes
from periplus.testing.formats import nitf as nitfs
from periplus.testing.formats.custom_tiff import SHORT, image_tags, tiff

CHROMA = Path(__file__).parent.parent / "decode" / "files" / "steps-chroma.j2k"
YCBCR, RGB = ["Y", "Cb", "Cr"], ["R", "G", "B"]


def colours(height: int = 32, width: int = 48) -> np.ndarray:
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([127 + 110 * np.sin((n + 1) * x / 20 + (3 - n) * y / 25 + n) for n in range(3)]).astype(np.uint8)


def nitf(values: np.ndarray, streams: list[bytes] | None, coding: str, mode: str = "P") -> bytes:
    """A NITF file whose header declares the bands Y, Cb and Cr."""
    picture = nitfs.ImageSegment(values=values, mode=mode, streams=streams, coding=coding, changes={"IREP": "YCbCr601"})
    data = nitfs.nitf(picture)
    for number, name in enumerate(YCBCR):
        data = data.replace(f"M B{number}    N".encode(), f"{name:2}B{number}    N".encode())
    return data


def encoded(values: np.ndarray, **options: object) -> bytes:
    return imagecodecs.jpeg8_encode(np.ascontiguousarray(np.moveaxis(values, 0, -1)), 95, **options)


def names(data: bytes) -> list[str]:
    return next(step.array.attributes["band_names"] for step in scan_bytes(data) if isinstance(step, Found))


def test_jpeg_of_nitf_that_becomes_rgb_is_named_so_in_every_exit(tmp_path: Path) -> None:
    values = colours()
    path = tmp_path / "a.ntf"
    path.write_bytes(nitf(values, [encoded(values)], "C3"))
    with periplus.index(path) as index:
        found = index["0/data"][...]
        assert index.arrays["0/data"].attrs["band_names"] == RGB
        index.write(str(tmp_path / "a.parquet"))
    with rasterio.open(path) as file:
        theirs = file.read()
    for other in (values, theirs):
        assert np.abs(found.astype(int) - other).mean() < 5
    with xarray.open_dataset(tmp_path / "a.parquet", engine="periplus", group="0") as dataset:
        assert dataset.bands.values.tolist() == RGB


def test_bands_of_nitf_have_the_names_of_what_they_are_read_as() -> None:
    values = colours()
    planes = [imagecodecs.jpeg8_encode(band, 95) for band in values]
    assert names(nitf(values, planes, "C3", mode="S")) == YCBCR
    assert names(nitf(values, [encoded(values, lossless=True)], "C5")) == YCBCR
    assert names(nitf(values, None, "NC", mode="B")) == YCBCR
    assert names(nitf(values, [encoded(values)], "I1")) == RGB


def test_chroma_of_half_the_resolution_in_nitf_becomes_rgb() -> None:
    stream = CHROMA.read_bytes()
    found = next(step.array for step in scan_bytes(stream) if isinstance(step, Found))
    assert names(nitf(np.zeros(found.shape, np.uint8), [stream], "C8")) == RGB


@pytest.mark.parametrize("irep", ["RGB     ", "YCbCr601"])
def test_streams_of_nitf_have_the_colours_of_their_markers(irep: str, tmp_path: Path) -> None:
    # GDAL writes a NITF marker that declares RGB before YCbCr, so neither that nor the subheader decides.
    values = colours()
    path = tmp_path / "a.ntf"
    for stored, markers in (("YCBCR", 20), ("YCBCR", 2), ("RGB", 2)):
        stream = encoded(values, outcolorspace=stored)
        data = nitf(values, [stream[:2] + stream[markers:]], "C3").replace(b"YCbCr601", irep.encode())
        path.write_bytes(data)
        with rasterio.open(path) as file:
            theirs = file.read()
        with periplus.index(path) as index:
            for other in (theirs, values):
                assert np.abs(index["0/data"][...].astype(int) - other).mean() < 5


@pytest.mark.parametrize(("compression", "planar"), [(1, 1), (7, 1), (1, 2)])
def test_ycbcr_of_tiff_is_labelled_as_it_is_read(compression: int, planar: int) -> None:
    data = encoded(colours()) if compression == 7 else bytes(32 * 48 * 3)
    tags = image_tags(
        48, 32, t258=(SHORT, [8] * 3), t259=compression, t262=6, t277=3, t279=len(data), t284=planar,
        t530=(SHORT, [1, 1]),
    )  # fmt: skip
    if planar == 2:
        tags |= {273: (SHORT, [8, 8 + 1536, 8 + 3072]), 279: (SHORT, [1536] * 3)}
    attributes = next(s.array.attributes for s in scan_bytes(tiff(tags, data=data)) if isinstance(s, Found))
    assert attributes["photometric"] == ("rgb" if planar == 1 else "ycbcr")
    assert attributes.get("source_color_space") == ("YCbCr" if planar == 1 else None)


def test_four_bands_without_loss_are_not_labelled_as_inks(tmp_path: Path) -> None:
    values = np.concatenate([colours(), colours()[:1]])
    path = tmp_path / "a.jpg"
    path.write_bytes(encoded(values, lossless=True))
    with periplus.index(path) as index:
        assert "photometric" not in index.arrays["0/data"].attrs
        np.testing.assert_array_equal(index["0/data"][...], values)
