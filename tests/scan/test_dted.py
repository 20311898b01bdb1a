"""DTED cells give GDAL's heights, georeference and metadata; damaged ones give only our errors."""

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio

import periplus
from periplus.decode import prepare
from periplus.errors import DecodeError, FormatError, LimitError, PeriplusError
from periplus.limits import MIB, Limits
from periplus.scan import sniff
from periplus.scan.drive import scan_bytes
from periplus.testing.formats import dted as dteds
from periplus.testing.mutants import byte_mutants
from periplus.testing.scans import decoded_values, only_array

MUTANTS = 500 * int(os.environ.get("PERIPLUS_FUZZ", "1"))


@pytest.fixture
def gdal(tmp_path: Path) -> Any:
    def opened(data: bytes) -> Any:
        path = tmp_path / "cell.dt0"
        path.write_bytes(data)
        return rasterio.open(path)

    return opened


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"west": 10, "south": -34},
        {"west": 0, "south": 0},
        {"labels": b"VOL1".ljust(80) + b"HDR1".ljust(80)},
        {"labels": b"HDR1".ljust(80)},
        {"latitude_first": True},
        {"datum": "WGS72"},
        {"interval": (600, 300)},
        {"checksums": 0xFFFFFFFF},
        {"checksums": 0},
        {"checksums": 169},
    ],
)
def test_heights_and_place_are_those_of_gdal(options: dict[str, Any], gdal: Any) -> None:
    heights = dteds.heights("gdal", 121, 61 if "interval" in options else 121)
    data = dteds.cell(heights, **options)
    array = only_array(data).array
    np.testing.assert_array_equal(decoded_values(data), heights)
    with gdal(data) as cell:
        np.testing.assert_array_equal(cell.read(), heights)
        assert array.georeference is not None
        assert array.georeference.crs == f"EPSG:{cell.crs.to_epsg()}"
        np.testing.assert_allclose(array.georeference.transform, cell.transform[:6], rtol=0, atol=1e-12)
        assert array.georeference.registration == cell.tags()["AREA_OR_POINT"].lower()
        assert (array.attributes["_FillValue"], array.attributes["units"]) == (cell.nodata, cell.units[0])


def test_facts_are_those_of_gdal(gdal: Any) -> None:
    data = dteds.cell(dteds.heights("facts"))
    found = only_array(data).array.attributes["dted"]
    with gdal(data) as cell:
        tags = {name.removeprefix("DTED_"): text.strip() for name, text in cell.tags().items()}
    for ours, theirs in {
        "security_code": "SecurityCode_DSI",
        "series": "NimaDesignator",
        "unique_reference": "UniqueRef_DSI",
        "data_edition": "DataEdition",
        "match_merge_version": "MatchMergeVersion",
        "maintenance_date": "MaintenanceDate",
        "match_merge_date": "MatchMergeDate",
        "maintenance_description": "MaintenanceDescription",
        "producer": "Producer",
        "vertical_datum": "VerticalDatum",
        "horizontal_datum": "HorizontalDatum",
        "digitizing_system": "DigitizingSystem",
        "compilation_date": "CompilationDate",
        "partial_cell": "PartialCellIndicator",
        "absolute_horizontal_accuracy": "HorizontalAccuracy",
        "absolute_vertical_accuracy": "VerticalAccuracy_ACC",
        "relative_horizontal_accuracy": "RelHorizontalAccuracy",
        "relative_vertical_accuracy": "RelVerticalAccuracy",
    }.items():
        assert found[ours] == tags[theirs], ours


def test_a_cell_that_gdal_wrote_is_read_whole() -> None:
    heights = dteds.heights("written")
    np.testing.assert_array_equal(decoded_values(dteds.gdal_cell(heights)), heights)


@pytest.mark.parametrize(("posts", "lines"), [(2, 3), (16, 20), (17, 20)])
def test_every_post_is_that_of_its_bytes(posts: int, lines: int) -> None:
    # GDAL exchanges the two middle rows where posts are even: docs/refusals.md explains the decision.
    numbers = np.arange(posts * lines, dtype=np.int16).reshape(1, posts, lines)
    data = dteds.cell(numbers)
    found = decoded_values(data)
    for line in range(lines):
        for post in range(posts):
            at = 3428 + line * (12 + 2 * posts) + 8 + 2 * post
            assert found[0, posts - 1 - post, line] == int.from_bytes(data[at : at + 2], "big")
    np.testing.assert_array_equal(found, numbers)


def test_rows_of_a_cell_of_even_height_are_in_order(tmp_path: Path, gdal: Any) -> None:
    """Bytes written out, from the south: 1, 2, -3, null in the western line, 5, -6, 7, 8 in the eastern one."""
    head = dteds.cell(np.zeros((1, 4, 2), np.int16))[:3428]
    west = bytes.fromhex("aa000000 00000000 0001 0002 8003 ffff 0000032e")
    east = bytes.fromhex("aa000001 00010000 0005 8006 0007 0008 00000146")
    expected = np.array([[[dteds.NULL, 8], [-3, 7], [2, -6], [1, 5]]], np.int16)
    path = tmp_path / "even.dt1"
    path.write_bytes(head + west + east)
    np.testing.assert_array_equal(decoded_values(path.read_bytes()), expected)
    with gdal(path.read_bytes()) as cell:
        theirs = cell.read()
    # GDAL (3.10) exchanges the two rows in the middle; nothing else may differ.
    assert any(np.array_equal(theirs, expected[:, order]) for order in ([0, 2, 1, 3], [0, 1, 2, 3]))
    osml = pytest.importorskip("aws.osml.io", reason="osml-imagery-io is not installed")
    np.testing.assert_array_equal(osml.imread(str(path)), expected)


ZONES = {0: 1, 49: 1, 50: 2, 69: 2, 70: 3, 75: 4, 80: 6, 89: 6, -1: 1, -50: 1, -51: 2, -71: 3, -76: 4, -81: 6, -90: 6}
"""How much further apart lines are than posts, by the southern edge of cells."""


@pytest.mark.parametrize(("south", "spread"), ZONES.items())
def test_cells_of_every_zone_have_the_place_of_gdal(south: int, spread: int, gdal: Any) -> None:
    heights = dteds.heights("zone", 121, 120 // spread + 1)
    for west in (-180, -1, 0, 179):
        data = dteds.cell(heights, west=west, south=south, interval=(300 * spread, 300))
        place = only_array(data).array.georeference
        assert place is not None
        with gdal(data) as cell:
            np.testing.assert_array_equal(decoded_values(data), cell.read())
            np.testing.assert_allclose(place.transform, cell.transform[:6], rtol=0, atol=1e-12)


def test_twos_complement_is_taken_for_what_it_is(gdal: Any) -> None:
    heights = dteds.heights("complement")
    # -1 is the pattern of a null post, and stays one.
    heights[(heights == dteds.NULL) | (heights == -1)] = -5
    data = dteds.cell(heights, complement=True)
    np.testing.assert_array_equal(decoded_values(data), heights)
    with gdal(data) as cell:
        np.testing.assert_array_equal(decoded_values(data), cell.read())


def test_lines_that_a_partial_cell_lacks_are_null(gdal: Any) -> None:
    heights = dteds.heights("partial")
    data = dteds.cell(heights, stored=(2, 5, 120))
    expected = np.full_like(heights, dteds.NULL)
    expected[:, :, [2, 5, 120]] = heights[:, :, [2, 5, 120]]
    np.testing.assert_array_equal(decoded_values(data), expected)
    assert only_array(data).array.attributes["lines_stored"] == 3
    with gdal(data) as cell:
        np.testing.assert_array_equal(cell.read(), expected)


def test_a_trimmed_cell_lacks_its_rim() -> None:
    heights = dteds.heights("trim")
    data = dteds.cell(heights)
    step = only_array(data)
    (codec,) = step.array.encodings[0].codecs
    trims = {"trim_top": 1, "trim_bottom": 2, "trim_left": 3, "trim_right": 4}
    trimmed = {**codec, "configuration": {**codec["configuration"], **trims}}
    decode = prepare((trimmed,), chunks=(1, 118, 114), dtype=np.dtype("i2"), limits=Limits())
    np.testing.assert_array_equal(decode(data[3428:], valid=(1, 118, 114)), heights[:, 1:-2, 3:-4])
    with pytest.raises(FormatError, match="does not fill"):
        prepare((trimmed,), chunks=(1, 121, 121), dtype=np.dtype("i2"), limits=Limits())


def test_a_damaged_record_is_refused() -> None:
    data = bytearray(dteds.cell(dteds.heights("damage")))
    data[3428 + 5 * 254 + 100] ^= 4
    with pytest.raises(DecodeError, match="record 5 of the cell fails its checksum"):
        decoded_values(bytes(data))
    data[3428 + 2 * 254] = 0
    with pytest.raises(DecodeError, match="record 2 of the cell does not begin with its sentinel"):
        decoded_values(bytes(data))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:3000], "ends past the end"),
        (lambda data: data[:-1], "bytes follow"),
        (lambda data: data[:3428], "0 bytes follow"),
        (lambda data: data[:47] + b"00000121" + data[55:], "0 lines"),
        (lambda data: data[:47] + b"x1210121" + data[55:], "not a number"),
        (lambda data: data[:80] + b"XXX" + data[83:], "DSI or ACC"),
        (lambda data: b"HDR1".ljust(80) * 2 + b"EOF1".ljust(80) + data, "no user header"),
    ],
)
def test_what_is_no_whole_cell_is_refused(change: Any, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        scan_bytes(change(dteds.cell(dteds.heights("refused"))))


def test_a_cell_over_the_limit_is_refused() -> None:
    with pytest.raises(LimitError):
        scan_bytes(dteds.cell(dteds.heights("limit")), limits=Limits(chunk_bytes=10_000))


def test_an_origin_that_cannot_be_read_is_omitted() -> None:
    data = dteds.cell(dteds.heights("place"))
    for unclear in (data[:4] + b"0800000X" + data[12:], data[:20] + b"NA  NA  " + data[28:]):
        about, cell = scan_bytes(unclear)
        assert cell.array.georeference is None
        assert "cannot be read" in about.attributes["refused"][0]


def test_a_file_is_known_by_content_and_read_through_the_index(tmp_path: Path) -> None:
    heights = dteds.heights("content")
    path = tmp_path / "n43.avg"
    path.write_bytes(dteds.cell(heights))
    index = periplus.index(path)
    np.testing.assert_array_equal(index["0/data"][0, 10:20, 30:50], heights[0, 10:20, 30:50])
    assert sniff(b"UHL9" + b" " * 200) is None


@pytest.mark.fuzz
def test_mutants_give_only_our_errors() -> None:
    small = Limits(chunk_bytes=16 * MIB)
    data = dteds.cell(dteds.heights("mutants", 21, 21))
    refused = 0
    for number, mutant in enumerate(byte_mutants(data, seed=5, count=MUTANTS)):
        start = time.process_time()
        try:
            decoded_values(mutant if number % 2 else mutant[:80] + data[80:], small)
        except PeriplusError:
            refused += 1
        assert time.process_time() - start < 10
    assert 0 < refused < MUTANTS
