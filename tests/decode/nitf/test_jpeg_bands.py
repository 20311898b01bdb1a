"""A lone large JPEG block of NITF is read in bands between its restart markers, each pixel as libjpeg has the whole."""

import base64
import io
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
import rasterio
from numpy.typing import NDArray
from PIL import Image

import periplus
from periplus.scan.jpeg import bands as jpegbands
from periplus.testing.formats import nitf as nitfs
from periplus.testing.formats.tiff import picture

HEIGHT, WIDTH = 205, 93
SAMPLINGS = {"gray": (1, {}), "4:4:4": (3, {"subsampling": 0}), "4:2:2": (3, {"subsampling": 1})}
SAMPLINGS["4:2:0"] = (3, {"subsampling": 2})
pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures of these tests count as large, and are cut finely."""
    monkeypatch.setattr(jpegbands, "LARGE", 1)
    monkeypatch.setattr(jpegbands, "ROWS", 32)
    monkeypatch.setattr(jpegbands, "SPREAD", 2)


def made(sampling: str, height: int = HEIGHT, **options: Any) -> tuple[bytes, NDArray[Any]]:
    """A JPEG stream, and what libjpeg-turbo makes of it."""
    bands, more = SAMPLINGS[sampling]
    values = picture(f"bands-{bands}", "u1", (bands, height, WIDTH))
    values[:, ::7] ^= 60
    target = io.BytesIO()
    image = Image.fromarray(values[0] if bands == 1 else np.ascontiguousarray(np.moveaxis(values, 0, -1)))
    image.save(target, "JPEG", quality=80, **{"restart_marker_rows": 1, **more, **options})
    seen = imagecodecs.jpeg8_decode(target.getvalue())
    return target.getvalue(), seen[None] if bands == 1 else np.moveaxis(seen, -1, 0)


def written(path: Path, stream: bytes, seen: NDArray[Any], **options: Any) -> Path:
    mode = "B" if len(seen) == 1 else "P"
    colours = {} if len(seen) == 1 else {"IREP": "YCbCr601"}
    item = nitfs.ImageSegment(
        values=seen, mode=mode, streams=[stream], **{"coding": "C3", "changes": colours, **options}
    )
    path.write_bytes(nitfs.nitf(item))
    return path


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("height", [HEIGHT, 192, 208])
@pytest.mark.parametrize("sampling", list(SAMPLINGS))
def test_every_band_is_as_in_the_whole(sampling: str, height: int, rows: int, tmp_path: Path) -> None:
    stream, seen = made(sampling, height, restart_marker_rows=rows)
    path = written(tmp_path / "a.ntf", stream, seen)
    with periplus.index(path) as index:
        assert len(index.select(array="0/data")) > 1
        np.testing.assert_array_equal(index["0/data"][...], seen)
        for top in range(0, height - 9, 13):
            np.testing.assert_array_equal(index["0/data"][:, top : top + 9, 5:40], seen[:, top : top + 9, 5:40])
    if sampling == "gray":  # GDAL's libjpeg rounds colours in another way
        with rasterio.open(path) as file:
            np.testing.assert_array_equal(file.read(), seen)


@pytest.mark.parametrize("sampling", list(SAMPLINGS))
@pytest.mark.parametrize(
    "options",
    [{"coding": "M3", "masked": True}, {"coding": "M3", "masked": True, "pad": 7}, {"coding": "I1"}],
    ids=["masked", "padded", "downsampled"],
)
def test_masked_and_downsampled_images_are_cut_too(sampling: str, options: dict[str, Any], tmp_path: Path) -> None:
    stream, seen = made(sampling)
    path = written(tmp_path / "a.ntf", stream + bytes(5), seen, **options)
    with periplus.index(path) as index:
        assert len(index.select(array="0/data")) > 1
        np.testing.assert_array_equal(index["0/data"][...], seen)


def test_bands_have_the_tables_that_a_quality_names(tmp_path: Path) -> None:
    stream, seen = made("gray")
    at = stream.index(b"\xff\xdb")
    bare = stream[:at] + stream[at + 2 + int.from_bytes(stream[at + 2 : at + 4], "big") :]
    path = written(tmp_path / "a.ntf", bare, seen, changes={"COMRAT": "00.2"})
    with periplus.index(path) as index:
        assert len(index.select(array="0/data")) > 1
        tables = index["0/data"].array.encodings[0].codecs[0]["configuration"]["jpeg_tables"]
        whole = imagecodecs.jpeg8_decode(bare, tables=base64.b64decode(tables))
        np.testing.assert_array_equal(index["0/data"][...][0], whole)


@pytest.mark.parametrize("change", ["no restarts", "filled", "another size", "several blocks"])
def test_other_images_are_a_chunk_a_block(change: str, tmp_path: Path) -> None:
    stream, seen = made("4:2:0", 96, **({"restart_marker_rows": 0} if change == "no restarts" else {}))
    if change == "several blocks":
        item = nitfs.ImageSegment(
            values=np.concatenate([seen, seen], 1), block=(96, WIDTH), mode="P", streams=[stream] * 2, coding="C3"
        )
        (tmp_path / "a.ntf").write_bytes(nitfs.nitf(item))
        expected = np.concatenate([seen, seen], 1)
    else:
        expected = seen[:, :90] if change == "another size" else seen
        options = {"block": (96, WIDTH)} if change == "another size" else {}
        written(tmp_path / "a.ntf", b"\xff\xff" * (change == "filled") + stream, expected, **options)
    with periplus.index(tmp_path / "a.ntf") as index:
        assert len(index.select(array="0/data")) == (2 if change == "several blocks" else 1)
        np.testing.assert_array_equal(index["0/data"][...], expected)
