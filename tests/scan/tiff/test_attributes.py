"""Attributes: nodata, scale, names, colours and times, compared with rasterio."""

import math
import struct
import warnings
from datetime import UTC, datetime

import numpy as np
import pytest
from affine import Affine
from rasterio.io import MemoryFile

from periplus.model import About, Array, Found
from periplus.scan.drive import scan_bytes
from periplus.scan.tiff.gdal import items, nodata, number
from periplus.testing.formats import tiff as tiffs
from periplus.testing.formats.custom_tiff import ASCII, DOUBLE, RATIONAL, SHORT, image_tags, tiff

PLACE = Affine(10, 0, 0, 0, -10, 0)


def arrays(data: bytes) -> dict[str, Array]:
    return {step.array.name: step.array for step in scan_bytes(data) if isinstance(step, Found)}


def first(**changes) -> dict:
    return dict(arrays(tiff(image_tags(4, 4, **changes), data=bytes(64)))["0/data"].attributes)


def test_packing_and_names_are_those_rasterio_reads() -> None:
    data = tiffs.case("geo-attributes").data
    attributes = arrays(data)["0/data"].attributes
    with MemoryFile(data) as memory, memory.open() as opened:
        assert attributes["_FillValue"] == opened.nodata
        assert attributes["scale_factor"] == list(opened.scales)
        assert attributes["add_offset"] == list(opened.offsets)
        assert [attributes["units"]] * 2 == list(opened.units)
        assert attributes["band_names"] == list(opened.descriptions)
        assert attributes["gdal_metadata"]["sensor"] == opened.tags()["sensor"]
    assert attributes["software"] == "periplus tests"


def test_text_with_markup_is_that_rasterio_reads() -> None:
    with MemoryFile() as memory:
        with memory.open(driver="GTiff", width=4, height=4, count=2, dtype="uint8", transform=PLACE) as made:
            made.descriptions = ("a & b", "a &amp; b <x>")
            made.units = ("m/s", "\"1'")
            made.update_tags(note="&lt; <z> & &amp;amp;")
            made.update_tags(1, own="p & q")
        with memory.open() as opened:
            attributes = arrays(bytes(memory.getbuffer()))["0/data"].attributes
            assert attributes["band_names"] == list(opened.descriptions)
            assert attributes["units"] == list(opened.units)
            assert attributes["gdal_metadata"]["note"] == opened.tags()["note"]
            assert attributes["band_metadata"][0] == opened.tags(1)


@pytest.mark.parametrize("sample", ["²", "9" * 5000, "-1", "x"])
def test_a_sample_that_is_no_band_is_of_the_image(sample: str) -> None:
    found = items(f'<GDALMetadata><Item name="n" sample="{sample}" role="scale">2</Item></GDALMetadata>')
    assert found.image == {"n": "2"}
    assert not found.roles


def test_statistics_become_numbers() -> None:
    xml = b"""<GDALMetadata>
      <Item name="STATISTICS_MINIMUM" sample="0">-3</Item><Item name="STATISTICS_MEAN" sample="0">1.5</Item>
      <Item name="note" sample="0">x</Item><Item name="STATISTICS_MINIMUM" sample="1">-4</Item></GDALMetadata>"""
    data = tiff(image_tags(4, 4, t277=2, t258=(SHORT, [8, 8]), t42112=(ASCII, xml)), data=bytes(64))
    attributes = arrays(data)["0/data"].attributes
    assert attributes["statistics"] == [{"minimum": -3, "mean": 1.5}, {"minimum": -4}]
    assert attributes["band_metadata"] == [{"note": "x"}, {}]
    with warnings.catch_warnings(), MemoryFile(data) as memory:
        warnings.simplefilter("ignore")
        with memory.open() as opened:
            assert opened.tags(1) == {"STATISTICS_MINIMUM": "-3", "STATISTICS_MEAN": "1.5", "note": "x"}


def test_levels_keep_what_holds_for_them() -> None:
    data = tiffs.gdal_written(
        tiffs.picture("levels", "u1", (1, 128, 128)),
        overviews=(2,),
        nodata=3,
        scales=(0.5,),
        tags={"TIFFTAG_SOFTWARE": "x"},
        tiled=True,
        blockxsize=32,
        blockysize=32,
    )
    full, half = arrays(data)["0/data"].attributes, arrays(data)["1/data"].attributes
    assert (full["_FillValue"], full["scale_factor"], full["software"]) == (3, 0.5, "x")
    assert (half["_FillValue"], half["scale_factor"]) == (3, 0.5)
    assert "software" not in half


def test_colours_are_those_rasterio_reads() -> None:
    data = tiffs.case("palette").data
    with MemoryFile(data) as memory, memory.open() as opened:
        expected = [list(color[:3]) for _, color in sorted(opened.colormap(1).items())]
    assert arrays(data)["0/data"].attributes["colormap"] == expected


@pytest.mark.parametrize("step", [1, 256, 257])
def test_colour_maps_of_8_and_16_bits(step: int) -> None:
    values = [v * step for v in range(200)] + [255 * step] * 56
    attributes = first(t262=3, t320=(SHORT, values * 3))
    assert attributes["photometric"] == "palette"
    assert attributes["colormap"][:2] == [[0, 0, 0], [1, 1, 1]]
    assert attributes["colormap"][255] == [255, 255, 255]


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("-9999", "i2", -9999),
        ("-9999.0", "i2", -9999),
        ("255", "u1", 255),
        ("256", "u1", None),
        ("-1", "u1", None),
        ("0.5", "u1", None),
        ("nan", "u1", None),
        ("18446744073709551615", "u8", 2**64 - 1),
        ("-9223372036854775808", "i8", -(2**63)),
        ("0.1", "f4", float(np.float32(0.1))),
        ("-3.4028234663852886e+38", "f4", float(np.finfo("f4").min)),
        ("1e300", "f4", None),
        ("1e300", "f8", 1e300),
        ("-inf", "f4", -math.inf),
        ("-1.#INF", "f8", -math.inf),
        ("65504", "f2", 65504.0),
        ("12", "c8", 12.0),
        ("none", "f4", None),
        ("", "f4", None),
    ],
)
def test_nodata_is_a_value_of_the_type_or_none(text: str, kind: str, expected: float | None) -> None:
    assert nodata(text, np.dtype(kind)) == expected


def test_nan_is_a_nodata_value() -> None:
    array = arrays(tiffs.case("geo-nan").data)["0/data"]
    assert math.isnan(array.attributes["_FillValue"])
    assert math.isnan(array.fill)


def test_nodata_the_type_cannot_hold_stays_as_text() -> None:
    attributes = first(t42113=(ASCII, b"-9999\0"))
    assert attributes["nodata_text"] == "-9999"
    assert "_FillValue" not in attributes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2021:03:04 05:06:07", datetime(2021, 3, 4, 5, 6, 7, tzinfo=UTC)),
        ("2021-03-04T05:06:07Z", datetime(2021, 3, 4, 5, 6, 7, tzinfo=UTC)),
        ("2021/03/04 05:06", datetime(2021, 3, 4, 5, 6, tzinfo=UTC)),
        ("2021:03:04", datetime(2021, 3, 4, tzinfo=UTC)),
        ("0000:00:00 00:00:00", None),
        ("yesterday", None),
    ],
)
def test_times_in_several_spellings(text: str, expected: datetime | None) -> None:
    steps = scan_bytes(tiff(image_tags(4, 4, t306=(ASCII, text.encode() + b"\0")), data=bytes(16)))
    about = next((step for step in steps if isinstance(step, About)), None)
    assert (about.datetime if about else None) == expected


def test_long_text_is_dropped_and_short_text_kept() -> None:
    assert first(t270=(ASCII, b"a" * 5000)).get("description") is None
    assert first(t270=(ASCII, "Müller\0".encode()))["description"] == "Müller"
    assert first(t270=(ASCII, "Müller\0".encode("latin-1")))["description"] == "Müller"


def test_resolution_is_reported_but_is_no_georeferencing() -> None:
    data = tiff(image_tags(4, 4, t282=(RATIONAL, [300, 1]), t283=(RATIONAL, [300, 1]), t296=2), data=bytes(16))
    array = arrays(data)["0/data"]
    assert array.attributes["resolution"] == {"x": 300.0, "y": 300.0, "per": "inch"}
    assert array.georeference is None


def test_orientation_is_reported_where_it_is_unusual() -> None:
    assert first(t274=(SHORT, [6]))["orientation"] == 6
    assert "orientation" not in first(t274=(SHORT, [1]))


def test_alpha_is_reported() -> None:
    attributes = first(t277=4, t258=(SHORT, [8] * 4), t262=2, t338=2, t279=64)
    assert (attributes["photometric"], attributes["extra_samples"]) == ("rgb", ["alpha"])


def lost(**changes) -> list[str]:
    steps = scan_bytes(tiff(image_tags(4, 4, **changes), data=bytes(16)))
    return [why for step in steps if isinstance(step, About) for why in step.attributes["refused"]]


def test_metadata_that_cannot_be_read_are_reported() -> None:
    outside = struct.pack("<I", 1 << 20)
    for tag, name in ((42113, "nodata"), (42112, "GDAL's metadata")):
        (why,) = lost(**{f"t{tag}": (ASCII, outside, 8)})
        assert why.startswith("image 0: ")
        assert name in why
    assert "colour map" in lost(t262=3, t320=(SHORT, [0] * 3 * 65536))[0]
    assert "XML" in lost(t42112=(ASCII, b"<GDALMetadata><Item\0"))[0]
    assert "transform" in lost(t33550=(DOUBLE, [1.0, 0.0, 0.0]), t33922=(DOUBLE, [0.0] * 6))[0]
    assert "RPC" in lost(t50844=(DOUBLE, [1.0] * 91))[0]
    # Long text and text outside the file leave what values mean as it is.
    assert lost(t270=(ASCII, b"a" * 5000), t305=(ASCII, outside, 8)) == []


def test_text_that_is_no_xml_is_ignored() -> None:
    assert items("<GDALMetadata><Item").roles == {}
    assert number("1e5") == 1e5
    assert number("1 2") is None
