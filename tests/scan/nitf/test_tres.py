"""The fields of common extensions of NITF are those that GDAL finds in them, and a broken one is only listed."""

import random
import xml.etree.ElementTree as ElementTree

import pytest
import rasterio

from periplus.model import Found
from periplus.scan.drive import scan_bytes
from periplus.scan.nitf.tres import PLAIN
from periplus.testing.formats import nitf as nitfs
from periplus.testing.formats.nitf import ImageSegment, tre

VALUES = nitfs.values_of("u8", 1)
SPARE = {"BLOCKA": 5}
"""Bytes that are reserved at the end."""


def digits(tag, number):
    choice = random.Random(tag)
    return "".join(choice.choice("123456789") for _ in range(number))


RECORDS = {
    **{tag: digits(tag, sum(width for _, width in PLAIN[tag])) + " " * SPARE.get(tag, 0) for tag in PLAIN},
    "CSEPHA": digits("CSEPHA", 38) + "002" + digits("E", 72),
    "J2KLRA": digits("J2KLRA", 8) + "003" + digits("J", 36),
    "PRJPSB": "5" * 82 + "2" + digits("PRJPSB", 60),
}


def fields(tag, text):
    data = nitfs.nitf(ImageSegment(values=VALUES, tres=tre(tag, text.encode())))
    (found,) = (step for step in scan_bytes(data) if isinstance(step, Found))
    (listed,) = found.array.attributes["tres"]
    assert (listed["tag"], listed["length"]) == (tag, len(text))
    return data, listed.get("fields")


def gdal(path, data):
    """Names and values that GDAL finds, those of groups by their number, from 1; not those that are reserved."""
    path.write_bytes(data)
    with rasterio.open(path) as file:
        (document,) = file.tags(ns="xml:TRE").values()
    (record,) = ElementTree.fromstring(document)
    found = {each.get("name"): each.get("value") for each in record.findall("field")}
    for group in record.findall("repeated"):
        prefix = "EPHEM_" if group.get("name") == "EPHEM" else ""
        for number, each in enumerate(group, 1):
            for field in each:
                stem = prefix + (field.get("name") or group.get("name"))
                found[f"{stem}{number}" if stem == "PRJ" else f"{stem}_{number}"] = field.get("value")
    return {name: value for name, value in found.items() if not name.startswith("RESERVED")}


@pytest.mark.parametrize("tag", sorted(RECORDS))
def test_fields_are_those_that_gdal_finds(tmp_path, tag):
    data, ours = fields(tag, RECORDS[tag])
    assert ours == gdal(tmp_path / "a.ntf", data)


@pytest.mark.parametrize("tag", sorted(RECORDS))
def test_an_extension_that_is_too_short_is_listed_alone(tag):
    assert fields(tag, RECORDS[tag].rstrip()[:-1])[1] is None


def test_a_count_that_is_no_number_is_none():
    assert fields("J2KLRA", "0" * 8 + "  3" + "1" * 36)[1] is None


def test_the_original_of_a_parsed_image_is_reported_if_present(tmp_path):
    data, ours = fields("J2KLRA", RECORDS["J2KLRA"] + "0500003019")
    assert (ours["NLEVELS_I"], ours["NBANDS_I"], ours["NLAYERS_I"]) == ("05", "00003", "019")
    assert ours == gdal(tmp_path / "a.ntf", data)


def test_no_more_fields_are_reported_than_a_real_header_has():
    record = tre("RPC00B", RECORDS["RPC00B"].encode())
    data = nitfs.nitf(ImageSegment(values=VALUES, overflow=1), extensions=[tre("USE00A", b"7" * 107) + record * 600])
    (found,) = (step for step in scan_bytes(data) if isinstance(step, Found))
    listed = found.array.attributes["tres"]
    assert len(listed) == 601
    assert all("fields" in each for each in listed[:252])
    assert not any("fields" in each for each in listed[252:])
