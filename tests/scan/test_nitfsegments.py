"""Segments of NITF without an image are listed: what they are and how large, whether their data are there or not."""

import pytest

from periplus.limits import Limits
from periplus.model import About, Need, Source
from periplus.scan import nitf
from periplus.scan.drive import scan_bytes
from periplus.testing import nitfs

PICTURE = nitfs.Picture(values=nitfs.values_of("u8", 1))
SECURITY = " " * 166
GRAPHIC = f"SY{'G1':10}{'a line':20}U{SECURITY}0C{'':13}".encode()
TEXT = f"TE{'T1':7}000{'20021216151629'}{'a title':80}U{SECURITY}0STA00000".encode()
EXTENSION = f"DE{'XML_DATA_CONTENT':25}01S{SECURITY}0000".encode()
RESERVED = f"RE{'SOMETHING':25}07U{SECURITY}0000".encode()
DOCUMENT = b"<xml/>" * 50_000
"""More than is asked for at once."""
OLD_SECURITY = f"{'':160}999998{'an event':40}"


def told(data):
    return next(step.attributes for step in scan_bytes(data, scanner=nitf) if isinstance(step, About))


def modern(document=DOCUMENT):
    return nitfs.nitf(
        PICTURE,
        others={
            "NUMS": [(GRAPHIC, b"cgm")], "NUMT": [(TEXT, b"words")], "NUMDES": [(EXTENSION, document), (b"??", b"")],
            "NUMRES": [(RESERVED, b"r")],
        },
    )  # fmt: skip


def test_every_segment_is_listed_by_kind_type_and_size():
    data = modern()
    found = told(data)["segments"]
    assert [each["kind"] for each in found] == [
        "graphic", "text", "data extension", "data extension", "reserved extension"
    ]  # fmt: skip
    assert [data[each["offset"] :][: each["length"]] for each in found] == [b"cgm", b"words", DOCUMENT, b"", b"r"]
    assert [each.get("type") for each in found] == ["C", "STA", "XML_DATA_CONTENT", None, "SOMETHING"]
    assert [each.get("name") for each in found] == ["a line", "a title", None, None, None]
    assert [each.get("id") for each in found] == ["G1", "T1", None, None, None]
    assert [each.get("classification") for each in found] == ["U", "U", "S", None, "U"]
    assert [each.get("version") for each in found] == [None, None, "01", None, "07"]


def test_segments_of_the_old_version_are_listed():
    graphic = f"SY{'S1':10}{'a symbol':20}U{OLD_SECURITY}0O{'':13}".encode()
    label = f"LA{'L1':10}U{SECURITY}0".encode()
    text = f"TE{'T1':10}{'16151629ZDEC02'}{'a title':80}U{OLD_SECURITY}0MTF00000".encode()
    others = {"NUMS": [(graphic, b"s")], "NUML": [(label, b"la")], "NUMT": [(text, b"tex")]}
    found = told(nitfs.nitf(PICTURE, version="NITF02.00", others=others))["segments"]
    assert [(each["kind"], each["id"], each.get("type"), each["length"]) for each in found] == [
        ("graphic", "S1", "O", 1), ("label", "L1", None, 2), ("text", "T1", "MTF", 3)
    ]  # fmt: skip


def test_a_file_of_images_alone_lists_none():
    assert "segments" not in told(nitfs.nitf(PICTURE, PICTURE))


@pytest.mark.parametrize("size", [True, False])
def test_a_file_that_lacks_them_is_read_all_the_same(size):
    data = modern()
    cut = data[: data.index(b"DE" + b"XML_DATA") + 9]
    steps = nitf.scan(Source(url="a.ntf", size=len(cut) if size else None), Limits())
    found, step = [], next(steps)
    while True:
        answer = cut[step.offset : step.offset + step.length] if isinstance(step, Need) else None
        found += [step] if isinstance(step, About) else []
        try:
            step = steps.send(answer)
        except StopIteration:
            break
    assert [each["length"] for each in found[0].attributes["segments"]] == [3, 5, len(DOCUMENT), 0, 1]


def test_what_lies_far_apart_costs_few_requests():
    data = nitfs.nitf(PICTURE, others={"NUMDES": [(EXTENSION, DOCUMENT)] * 40})
    steps = nitf.scan(Source(url="a.ntf", size=len(data)), Limits())
    asked, step = [], next(steps)
    while not isinstance(step, About):
        asked += [step] if isinstance(step, Need) else []
        step = steps.send(data[step.offset : step.offset + step.length] if isinstance(step, Need) else None)
    assert len(asked) <= 33
    assert sum(need.length for need in asked) < 40_000
    types = [each.get("type") for each in step.attributes["segments"]]
    assert types == ["XML_DATA_CONTENT"] * 32 + [None] * 8
