"""Segments of NITF without an image are listed: what they are and how large, whether their data are there or not."""

import numpy as np
import pytest
import rasterio

import periplus
from periplus.limits import Limits
from periplus.model import About, Found, Source
from periplus.scan.drive import MemoryFolder, scan_bytes
from periplus.scan.nitf import scan as nitf
from periplus.testing.formats import nitf as nitfs
from periplus.testing.scans import needs_of

PICTURE = nitfs.ImageSegment(values=nitfs.values_of("u8", 1))
SECURITY = " " * 166
GRAPHIC = f"SY{'G1':10}{'a line':20}U{SECURITY}0C{'':13}".encode()
TEXT = f"TE{'T1':7}000{'20021216151629'}{'a title':80}U{SECURITY}0STA00000".encode()
EXTENSION = f"DE{'XML_DATA_CONTENT':25}01S{SECURITY}0000".encode()
RESERVED = f"RE{'SOMETHING':25}07U{SECURITY}0000".encode()
DOCUMENT = b"<xml/>" * 50_000
"""More than is asked for at once."""
OLD_SECURITY = f"{'':160}999998{'an event':40}"


def reported(data):
    return next(step.attributes for step in scan_bytes(data, scanner=nitf) if isinstance(step, About))


def pixels(data):
    (found,) = (step for step in scan_bytes(data, scanner=nitf) if isinstance(step, Found))
    (offset,), (length,) = found.refs.offset.tolist(), found.refs.length.tolist()
    return data[offset : offset + length]


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
    found = reported(data)["segments"]
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
    found = reported(nitfs.nitf(PICTURE, version="NITF02.00", others=others))["segments"]
    assert [(each["kind"], each["id"], each.get("type"), each["length"]) for each in found] == [
        ("graphic", "S1", "O", 1), ("label", "L1", None, 2), ("text", "T1", "MTF", 3)
    ]  # fmt: skip


def test_every_field_of_a_subheader_is_reported_by_its_name():
    marks = f"US{'WORD':11}{'H':2}{'FRIENDS':20}DD20301231{'X1':4}R20290101{'why':43}O{'who':40}A20200101{'7':15}"
    graphic = f"SY{'G1':10}{'a line':20}S{marks}0C{'0' * 13}002001{'0000100002'}{'0000300004'}C{'0000500006'}0000000"
    text = f"TE{'T1':7}00120021216151629{'a title':80}S{marks}0STA00000"
    more = f"DE{'TRE_OVERFLOW':25}01S{marks}UDID  0010000"
    others = {"NUMS": [(graphic.encode(), b"g")], "NUMT": [(text.encode(), b"t")], "NUMDES": [(more.encode(), b"d")]}
    drawn, written, extended = (each["nitf"] for each in reported(nitfs.nitf(PICTURE, others=others))["segments"])
    for fields, prefix, mark in ((drawn, "SS", "SSCLAS"), (written, "TS", "TSCLAS"), (extended, "DES", "DECLAS")):
        secret = {name.removeprefix(prefix): fields[name] for name in fields if name.startswith(prefix)}
        assert fields[mark] == "S"
        assert (secret["CLSY"], secret["CODE"], secret["REL"], secret["CTLN"]) == ("US", "WORD", "FRIENDS", "7")
        assert (secret["DCDT"], secret["CLTX"], secret["CAUT"], secret["SRDT"]) == (
            "20301231",
            "why",
            "who",
            "20200101",
        )
    assert (drawn["SFMT"], drawn["SDLVL"], drawn["SALVL"], drawn["SLOC"]) == ("C", "002", "001", "0000100002")
    assert (drawn["SBND1"], drawn["SCOLOR"], drawn["SBND2"]) == ("0000300004", "C", "0000500006")
    assert (written["TXTALVL"], written["TXTDT"], written["TXTFMT"]) == ("001", "20021216151629", "STA")
    assert (extended["DESOFLW"], extended["DESITEM"]) == ("UDID", "001")
    assert "" not in {*drawn, *written, *extended}


def test_the_header_reports_its_lengths_and_the_subheader_its_bands():
    data = nitfs.nitf(nitfs.ImageSegment(values=nitfs.values_of("u8", 3)))
    fields = reported(data)["nitf"]
    assert (int(fields["FL"]), fields["HL"]) == (len(data), data.index(b"IM" + b"image"))
    (found,) = (step for step in scan_bytes(data, scanner=nitf) if isinstance(step, Found))
    fields = found.array.attributes["nitf"]
    assert (fields["IREPBAND"], fields["ISUBCAT"]) == (["M"] * 3, ["B0", "B1", "B2"])
    assert (fields["IFC"], fields["IMFLT"]) == (["N"] * 3, [""] * 3)


def test_a_file_of_images_alone_lists_none():
    assert "segments" not in reported(nitfs.nitf(PICTURE, PICTURE))


@pytest.mark.parametrize("size", [True, False])
def test_a_file_that_lacks_them_is_read_all_the_same(size):
    data = modern()
    cut = data[: data.index(b"DE" + b"XML_DATA") + 9]
    steps = nitf.scan(Source(url="a.ntf", size=len(cut) if size else None), Limits())
    memory = MemoryFolder(cut, url="a.ntf", limits=Limits())
    found, step = [], next(steps)
    while True:
        answer = None if isinstance(step, About | Found) else memory.answer(step)
        found += [step] if isinstance(step, About) else []
        try:
            step = steps.send(answer)
        except StopIteration:
            break
    assert [each["length"] for each in found[0].attributes["segments"]] == [3, 5, len(DOCUMENT), 0, 1]


def test_segments_far_apart_cost_few_requests():
    data = nitfs.nitf(PICTURE, others={"NUMT": [(TEXT, b"words")] * 40, "NUMDES": [(EXTENSION, DOCUMENT)] * 4})
    steps = nitf.scan(Source(url="a.ntf", size=len(data)), Limits())
    memory = MemoryFolder(data, url="a.ntf", limits=Limits())
    asked, step = [], next(steps)
    while not isinstance(step, About):
        asked += needs_of(step)
        step = steps.send(memory.answer(step))
    assert sum(need.offset >= data.index(TEXT) for need in asked) == 2
    assert sum(need.length for need in asked) < 40_000
    types = [each.get("type") for each in step.attributes["segments"]]
    assert types == ["STA"] * 40 + ["XML_DATA_CONTENT"] * 2 + [None] * 2


def streamed(values, *, lengths=True, mark="0eca14bf"):
    """A file whose header was written before the lengths were known, and a last segment that repeats the header."""
    size = int(nitfs.nitf(nitfs.ImageSegment(values=values))[354:360]) + 13
    subheader = f"DE{'STREAMING_FILE_HEADER':25}01U{SECURITY}0000".encode()
    length = f"{size:07}".encode()
    start, end = length + bytes.fromhex("0a6e1d97"), bytes.fromhex(mark) + length
    body = start + b" " * size + end
    data = nitfs.nitf(nitfs.ImageSegment(values=values), others={"NUMDES": [(subheader, body)]})
    head = data[:size]
    image = f"{values.size:010}".encode()
    first = head.replace(image, b"9" * 10 if lengths else image, 1).replace(f"{len(data):012}".encode(), b"9" * 12, 1)
    return first + data[size : -len(body)] + start + head + end


def test_a_header_that_was_written_first_is_read_at_the_end(tmp_path):
    values = nitfs.values_of("u8", 1)
    data = streamed(values)
    assert pixels(data) == values.tobytes()
    assert [each["type"] for each in reported(data)["segments"]] == ["STREAMING_FILE_HEADER"]
    path = tmp_path / "a.ntf"
    path.write_bytes(data)
    with rasterio.open(path) as file:
        np.testing.assert_array_equal(file.read(), values)


def test_a_header_that_needs_no_other_is_read_as_it_is():
    values = nitfs.values_of("u8", 1)
    assert pixels(streamed(values, lengths=False, mark="00000000")) == values.tobytes()


def test_a_file_without_images_is_indexed_for_its_metadata(tmp_path):
    other, paths = tmp_path / "text.ntf", [tmp_path / f"{n}.ntf" for n in (1, 2)]
    other.write_bytes(nitfs.nitf(others={"NUMT": [(TEXT, b"words")]}))
    index = periplus.index(other)
    assert dict(index.arrays) == {}
    assert index.files.status == ["ok"]
    assert index.files.format == ["nitf"]
    assert [segment["name"] for segment in index.attrs["segments"]] == ["a title"]
    written = index.write(tmp_path / "a.parquet")
    assert written.attrs["nitf"] == index.attrs["nitf"]
    assert written.check_index().problems == ()
    for path in paths:
        path.write_bytes(nitfs.nitf(PICTURE))
    mixed = periplus.index([other, *paths])
    assert mixed.files.status == ["ok"] * 3
    assert list(mixed.arrays) == ["1/0/data", "2/0/data"]
    assert mixed.table.catalog.attributes["text"]["segments"][0]["kind"] == "text"
    stacked = periplus.index([other, *paths], arrange="stack", coordinate="order")
    assert stacked["0/data"].shape[0] == 2
    assert stacked.files.error == ["format: the file holds no image", None, None]
