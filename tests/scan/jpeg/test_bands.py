"""Large JPEGs with restart markers at row ends are read in bands, each pixel as libjpeg decodes it from the whole."""

import io
import os
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import periplus
from periplus.decode import prepare
from periplus.errors import DecodeError, FormatError, PeriplusError
from periplus.limits import MIB, Limits
from periplus.model import Found, Need
from periplus.scan.drive import scan_bytes
from periplus.scan.jpeg import bands as jpegbands
from periplus.scan.jpeg import markers as jpegmarkers
from periplus.scan.jpeg import scan as jpeg
from periplus.testing.formats import pictures
from periplus.testing.formats.tiff import picture
from periplus.testing.mutants import byte_mutants
from periplus.zarr.description.codecs import with_facts

MUTANTS = 80 * int(os.environ.get("PERIPLUS_FUZZ", "1"))
HEIGHT, WIDTH = 205, 93


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures of these tests count as large, and are cut finely."""
    monkeypatch.setattr(jpegbands, "LARGE", 1)
    monkeypatch.setattr(jpegbands, "ROWS", 32)
    monkeypatch.setattr(jpegbands, "SPREAD", 2)


def made(bands: int = 3, height: int = HEIGHT, **options: Any) -> bytes:
    values = picture(f"bands-{bands}", "u1", (bands, height, WIDTH))
    values[:, ::7] ^= 60
    image = Image.fromarray(values[0] if bands == 1 else np.ascontiguousarray(np.moveaxis(values, 0, -1)))
    target = io.BytesIO()
    image.save(target, "JPEG", quality=80, **options)
    return target.getvalue()


def found(data: bytes, limits: Limits | None = None) -> Found:
    (step,) = (step for step in scan_bytes(data, limits=limits) if isinstance(step, Found))
    return step


def read(data: bytes, step: Found, limits: Limits | None = None) -> NDArray[Any]:
    array = step.array
    decode = prepare(array.encodings[0], chunks=array.chunks, dtype=array.dtype, limits=limits or Limits())
    out = np.zeros(array.shape, array.dtype)
    for row, (_, y, _) in enumerate(step.refs.chunk.T.tolist()):
        top = y * array.chunks[1]
        rows = min(array.chunks[1], array.shape[1] - top)
        start, length = int(step.refs.offset[row]), int(step.refs.length[row])
        values = decode(data[start : start + length], valid=(array.shape[0], rows, array.shape[2]))
        out[:, top : top + rows] = values[:, :rows]
    return out


def whole(data: bytes) -> NDArray[Any]:
    values = imagecodecs.jpeg8_decode(data)
    return values[None] if values.ndim == 2 else np.moveaxis(values, -1, 0)


CUTS = {
    "every unit": {"restart_marker_blocks": 1},
    "three units": {"restart_marker_blocks": 3},
    "every row": {"restart_marker_rows": 1},
    "two rows": {"restart_marker_rows": 2},
}


@pytest.mark.parametrize("cut", list(CUTS))
@pytest.mark.parametrize("subsampling", ["gray", 0, 1, 2])
def test_every_band_is_as_in_the_whole(subsampling: Any, cut: str) -> None:
    bands = 1 if subsampling == "gray" else 3
    options = {} if bands == 1 else {"subsampling": subsampling}
    for height in (HEIGHT, 192, 199, 200, 208, 193):
        data = made(bands, height, **options, **CUTS[cut])
        step = found(data)
        assert len(step.refs) > 1
        assert ("margin" in step.array.encodings[0].codecs[0]["configuration"]) == (subsampling == 2)
        np.testing.assert_array_equal(read(data, step), whole(data), err_msg=str(height))


def test_a_window_reads_part_of_the_file(tmp_path: Path) -> None:
    data = made(restart_marker_rows=1)
    path = tmp_path / "picture.jpg"
    path.write_bytes(data)
    with periplus.index(path) as index:
        array = index["0/data"]
        np.testing.assert_array_equal(array[:, 70:80, 5:50], whole(data)[:, 70:80, 5:50])
        np.testing.assert_array_equal(array[...], whole(data))
        lengths = index.sql("select length from chunks").column("length").to_pylist()
    assert max(lengths) < len(data) / 2


def test_the_whole_chunk_is_decoded_without_its_position() -> None:
    data = made(restart_marker_rows=1)
    step = found(data)
    array = step.array
    assert array.encodings[0].clipped == ("y",)
    codecs = with_facts(array.encodings[0], array)
    decode = prepare(codecs, chunks=array.chunks, dtype=array.dtype, limits=Limits())
    start, length = int(step.refs.offset[-1]), int(step.refs.length[-1])
    last = array.shape[1] % array.chunks[1]
    assert codecs[0]["configuration"]["last_rows"] == last
    values = decode.whole(data[start : start + length], fill=7)
    np.testing.assert_array_equal(values[:, :last], whole(data)[:, -last:])
    assert (values[:, last:] == 7).all()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"progressive": True, "restart_marker_rows": 1},
        # Units across are 6, and no restart but that after 31 rows of them is at the end of one.
        {"restart_marker_blocks": 31, "subsampling": 2},
    ],
)
def test_other_streams_are_one_chunk(options: dict[str, Any]) -> None:
    data = made(**options)
    step = found(data)
    assert (step.refs.offset.tolist(), step.refs.length.tolist()) == ([0], [len(data)])
    np.testing.assert_array_equal(read(data, step), whole(data))


def test_small_pictures_are_not_read_to_be_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jpegbands, "LARGE", 64 * MIB)
    data = made(restart_marker_rows=1)
    assert len(found(data).refs) == 1
    steps = jpeg.scan(periplus.model.Source(url="memory:a", size=len(data)), Limits())
    asked, step = [], next(steps)
    while isinstance(step, Need):
        asked.append((step.offset, step.length))
        step = steps.send(data[step.offset : step.offset + step.length])
    assert sum(length for _, length in asked) <= 4 + jpegmarkers.HEAD_BYTES


def test_a_file_past_the_budget_of_headers_is_one_chunk() -> None:
    data = made(height=2000, restart_marker_rows=1)
    assert len(data) > 2 * jpegmarkers.HEAD_BYTES
    assert len(found(data, Limits(header_bytes=len(data))).refs) == 1
    assert len(found(data, Limits(header_bytes=2 * len(data))).refs) > 1
    # One chunk would be too large.
    assert len(found(data, Limits(header_bytes=len(data), chunk_bytes=3 * 1999 * WIDTH)).refs) > 1


@pytest.mark.parametrize("change", ["missing", "wrong number", "another marker", "no end"])
def test_markers_that_are_not_as_expected_make_it_one_chunk(change: str) -> None:
    data = made(restart_marker_rows=1)
    second = data.index(b"\xff\xd1")
    if change == "missing":
        data = data[:second] + data[second + 2 :]
    elif change == "wrong number":
        data = data[: second + 1] + b"\xd5" + data[second + 2 :]
    elif change == "another marker":
        data = data[:second] + b"\xff\xdc\0\4\0\1" + data[second:]
    else:
        data = data[:-2]
    assert len(found(data).refs) == 1


def test_a_marker_between_two_answers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    data = made(restart_marker_rows=1)
    expected = found(data).refs.offset.tolist()
    assert len(expected) > 1
    for size in (100, 101, 103, 107):
        monkeypatch.setattr(jpegbands, "READ", size)
        assert found(data).refs.offset.tolist() == expected


def test_a_band_that_lacks_rows_is_refused() -> None:
    data = made(restart_marker_rows=1)
    step = found(data)
    array = step.array
    decode = prepare(array.encodings[0], chunks=array.chunks, dtype=array.dtype, limits=Limits())
    start, length = int(step.refs.offset[1]), int(step.refs.length[1])
    band = data[start : start + length]
    marks = [n for n in range(2, len(band) - 1) if band[n] == 0xFF and 0xD0 <= band[n + 1] <= 0xD7]
    for wrong in (band[: marks[0]], band + b"\xff\xd0" * 99, b""):
        with pytest.raises(DecodeError):
            decode(wrong, valid=array.chunks)


@pytest.mark.parametrize(
    "change", [{"header": "%"}, {"header": ""}, {"header": "/9j/"}, {"margin": 3}, {"margin": -8}, {"header": 5}]
)
def test_settings_that_do_not_fit_are_refused(change: dict[str, Any]) -> None:
    array = found(made(restart_marker_rows=1)).array
    (codec,) = array.encodings[0].codecs
    codec = {**codec, "configuration": {**codec["configuration"], **change}}
    with pytest.raises(FormatError):
        prepare((codec,), chunks=array.chunks, dtype=array.dtype, limits=Limits())


@pytest.mark.fuzz
def test_mutants_give_only_our_errors() -> None:
    limits, refused = Limits(chunk_bytes=4 * MIB), 0
    data = made(restart_marker_rows=1)
    for mutant in byte_mutants(data, seed=3, count=MUTANTS):
        try:
            read(mutant, found(mutant, limits), limits)
        except PeriplusError:
            refused += 1
    assert 0 < refused < MUTANTS


def test_inks_may_be_cut_too() -> None:
    values = picture("inks", "u1", (4, HEIGHT, WIDTH))
    target = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(np.moveaxis(values, 0, -1)), "CMYK").save(
        target, "JPEG", restart_marker_rows=1, subsampling=0
    )
    data = target.getvalue()
    step = found(data)
    assert len(step.refs) > 1
    inks = whole(data).astype(int)
    np.testing.assert_array_equal(read(data, step), inks[:3] * inks[3] // 255)


def test_pictures_of_the_kit_are_cut_or_not_but_right() -> None:
    for name in ("rgb-restarts", "rgb", "gray"):
        data = pictures.jpegs()[name]()
        np.testing.assert_array_equal(read(data, found(data)), whole(data))
