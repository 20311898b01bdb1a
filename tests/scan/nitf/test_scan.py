"""Fields, extensions and corners of NITF headers are those of GDAL; damaged ones give only our errors."""

import os
import time
import tracemalloc
from functools import lru_cache

import imagecodecs
import numpy as np
import pytest
import rasterio

from periplus.errors import FormatError, LimitError
from periplus.limits import MIB, Limits
from periplus.model import About, Found
from periplus.scan import sniff
from periplus.scan.drive import scan_bytes
from periplus.scan.nitf import scan as nitf
from periplus.testing.formats import nitf as nitfs
from periplus.testing.formats.nitf import ImageSegment, tre
from periplus.testing.mutants import byte_mutants
from periplus.testing.scans import check_consistent, watch_scan

SMALL = Limits(chunk_bytes=256 * MIB)
MUTANTS = 150 * int(os.environ.get("PERIPLUS_FUZZ", "1"))
FILES = 18
"""Files that are damaged; making them takes a while, so they are not made to collect the tests."""
VALUES = nitfs.values_of("u8", 1)
CORNERS = {
    "G": "411900N0200400E411900N0200700E411700N0200700E411700N0200400E",
    "D": "+41.300+020.100+41.300+020.190+41.228+020.190+41.228+020.100",
    "N": "335000005000000335000905000000335000904999928335000004999928",
    "S": "335000005000000335000905000000335000904999928335000004999928",
    "U": "11SKU500003000011SKU500093000011SKU500092992811SKU5000029928"[:60],
}
LEANING = "411704N0200433E411907N0200445E411900N0200731E411656N0200719E"
TWISTED = "411704N0200433E411907N0200445E411500N0200731E411656N0200719E"


def found_in(data: bytes) -> tuple[About, list[Found]]:
    about, *found = scan_bytes(data, scanner=nitf)
    return about, found


def rpc() -> tuple[bytes, dict]:
    numbers = {
        "err_bias": "0001.50", "err_rand": "0000.25", "line_off": "000036", "samp_off": "00045",
        "lat_off": "+41.2500", "long_off": "+020.1250", "height_off": "+0100", "line_scale": "000036",
        "samp_scale": "00045", "lat_scale": "+00.0250", "long_scale": "+000.0500", "height_scale": "+0500",
    }  # fmt: skip
    names = ("line_num_coeff", "line_den_coeff", "samp_num_coeff", "samp_den_coeff")
    terms = {name: [f"{'+-'[n % 2]}0.{n + 20 * k:06}E+{k}" for n in range(20)] for k, name in enumerate(names)}
    text = "1" + "".join(numbers.values()) + "".join(term for each in terms.values() for term in each)
    values = {name: float(value) for name, value in numbers.items()}
    return text.encode(), {**values, **{name: [float(term) for term in each] for name, each in terms.items()}}


def test_the_format_is_recognised_by_its_magic():
    for version in ("NITF02.10", "NITF02.00", "NSIF01.00"):
        assert sniff(nitfs.nitf(ImageSegment(values=VALUES), version=version)[:132]) is nitf


@pytest.mark.parametrize("version", ["NITF02.10", "NITF02.00", "NSIF01.00"])
def test_fields_of_headers_and_subheaders_are_attributes(version):
    tres = tre("BLOCKA", b"01" + b"00010" * 2 + b" " * 111) + tre("XYZZYA", b"plugh")
    about, found = found_in(
        nitfs.nitf(ImageSegment(values=VALUES, tres=tres), version=version, tres=tre("JITCID", b"abc"))
    )
    assert about.datetime.isoformat() == "2002-12-16T15:16:29+00:00"
    head, image = about.attributes["nitf"], found[0].array.attributes["nitf"]
    assert (head["FTITLE"], head["FSCLAS"], head["OSTAID"], head["NUMI"]) == ("a title", "U", "somewhere", 1)
    assert ("FSCLSY" in head) == (version != "NITF02.00")
    assert about.attributes["tres"] == [{"tag": "JITCID", "length": 3}]
    assert (image["ISORCE"], image["NROWS"], image["NBPP"], image["IC"]) == ("a camera", 72, 8, "NC")
    block, other = found[0].array.attributes["tres"]
    assert (block["tag"], block["length"], block["fields"]["N_GRAY"]) == ("BLOCKA", 123, "00010")
    assert other == {"tag": "XYZZYA", "length": 5}
    assert found[0].array.attributes["comments"] == ["a comment"]


@pytest.mark.parametrize(
    ("stated", "taken"),
    [
        (("20080127051745",), "2008-01-27T05:17:45"),
        (("20080127------",), "2008-01-27T00:00:00"),
        (("--------------", "19991231235959"), "1999-12-31T23:59:59"),
        (("--------------",), "2002-12-16T15:16:29"),  # of the file
    ],
)
def test_the_time_of_a_file_is_when_its_image_was_taken(stated, taken):
    pictures = [ImageSegment(values=VALUES, changes={"IDATIM": text}) for text in stated]
    about, _ = found_in(nitfs.nitf(*pictures))
    assert about.datetime.isoformat() == f"{taken}+00:00"


def test_look_up_tables_become_the_colormap_gdal_has(tmp_path):
    luts = [bytes(range(256)), bytes(range(255, -1, -1)), bytes(256)]
    path = tmp_path / "a.ntf"
    for tables in (luts, luts[1:2]):
        path.write_bytes(nitfs.nitf(ImageSegment(values=VALUES, luts=tables)))
        _, found = found_in(path.read_bytes())
        with rasterio.open(path) as file:
            wanted = file.colormap(1)
        assert found[0].array.attributes["colormap"] == [list(wanted[n][:3]) for n in range(256)]


def test_look_up_tables_of_other_kinds_are_reported():
    two = ImageSegment(values=VALUES, luts=[bytes([1, 2]), bytes([3, 4])])
    assert found_in(nitfs.nitf(two))[1][0].array.attributes["lut"] == [0x0103, 0x0204]
    bands = ImageSegment(values=np.tile(VALUES, (2, 1, 1)), luts=[bytes([1, 2])])
    assert found_in(nitfs.nitf(bands))[1][0].array.attributes["luts"] == [[[1, 2]], [[1, 2]]]


def test_pad_pixels_are_the_fill():
    for kind, pad in (("u8", 9), ("i16", -5), ("u12", 4000)):
        item = ImageSegment(values=nitfs.values_of(kind, 1), kind=kind, block=(32, 48), masked=True, pad=pad)
        _, found = found_in(nitfs.nitf(item))
        assert (found[0].array.fill, found[0].array.attributes["_FillValue"]) == (pad, pad)


@pytest.mark.parametrize("system", [*CORNERS, "leaning", "twisted"])
def test_corners_are_those_of_gdal(system, tmp_path):
    corners = {**CORNERS, "leaning": LEANING, "twisted": TWISTED}[system]
    path = tmp_path / "a.ntf"
    icords = system if len(system) == 1 else "G"
    path.write_bytes(nitfs.nitf(ImageSegment(values=VALUES, icords=icords, igeolo=corners)))
    _, found = found_in(path.read_bytes())
    where = found[0].array.georeference
    with rasterio.open(path) as file:
        gcps, crs = file.gcps
        if gcps:
            assert rasterio.crs.CRS.from_user_input(where.crs) == crs
            assert [(p.column, p.row, p.x, p.y) for p in where.gcps] == [(p.col, p.row, p.x, p.y) for p in gcps]
            assert where.transform is None
        else:
            assert rasterio.crs.CRS.from_user_input(where.crs) == file.crs
            np.testing.assert_allclose(where.transform, tuple(file.transform)[:6], rtol=1e-9, atol=1e-12)
    assert bool(gcps) == (system == "twisted")


def test_rational_polynomials_are_those_gdal_reads(tmp_path):
    text, wanted = rpc()
    path = tmp_path / "a.ntf"
    path.write_bytes(nitfs.nitf(ImageSegment(values=VALUES, tres=tre("RPC00B", text))))
    _, found = found_in(path.read_bytes())
    where = found[0].array.georeference.rpc
    assert where == wanted
    with rasterio.open(path) as file:
        seen = file.rpcs
    assert (where["line_off"], where["lat_off"], where["height_scale"]) == (
        seen.line_off,
        seen.lat_off,
        seen.height_scale,
    )
    assert where["samp_den_coeff"] == pytest.approx(seen.samp_den_coeff)


def test_a_broken_record_of_polynomials_is_ignored():
    for text in (b"", b"1", b"0" * 1041, b"1" + b"x" * 1040):
        _, found = found_in(nitfs.nitf(ImageSegment(values=VALUES, tres=tre("RPC00B", text))))
        assert found[0].array.georeference is None


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (ImageSegment(values=VALUES, coding="C4", streams=[b"x" * 99]), "image 1: vector quantisation"),
        (
            ImageSegment(values=VALUES, coding="C8", streams=[b"x" * 99]),
            "image 1: the image holds no JPEG 2000 codestream",
        ),
        (ImageSegment(values=VALUES, changes={"IMODE": "T"}), "image 1: image mode 'T'"),
        (ImageSegment(values=VALUES, changes={"NBPP": "65"}), "image 1: pixels of type 'INT' with 65 bits"),
    ],
)
def test_an_image_that_is_not_read_takes_nothing_from_the_others(broken, why):
    about, found = found_in(nitfs.nitf(ImageSegment(values=VALUES), broken, ImageSegment(values=VALUES)))
    assert [each.array.name for each in found] == ["0/data", "images/2/0/data"]
    (refusal,) = about.attributes["refused"]
    assert refusal.startswith(why)
    with pytest.raises(FormatError, match=why[7:]):
        found_in(nitfs.nitf(broken))


def test_counts_and_lengths_that_are_left_blank_are_none(tmp_path):
    data = nitfs.nitf(ImageSegment(values=VALUES))
    for old, new in ((b"VIS     08R", b"VIS       R"), (b"1.0 0000000000", b"1.0           ")):
        assert data.count(old) == 1
        data = data.replace(old, new)
    _, (found,) = found_in(data)
    assert (found.array.attributes["nitf"]["ABPP"], found.refs.offset.tolist()) == ("", [len(data) - VALUES.size])
    path = tmp_path / "a.ntf"
    path.write_bytes(data)
    with rasterio.open(path) as file:
        np.testing.assert_array_equal(file.read(), VALUES)


def test_a_file_that_is_cut_off_in_a_later_image_is_refused_whole():
    with pytest.raises(FormatError, match="image 1: the image ends past the end of the file"):
        found_in(nitfs.nitf(ImageSegment(values=VALUES), ImageSegment(values=VALUES))[:-9])


@pytest.mark.parametrize("coding", ["C7", "M7", "C9", "XX"])
def test_a_compression_we_do_not_read_is_refused_by_name(coding):
    item = ImageSegment(values=VALUES, coding=coding, streams=[b"\0" * 100])
    with pytest.raises(FormatError, match=f"image 0: compression {coding} is not supported"):
        scan_bytes(nitfs.nitf(item), scanner=nitf)
    about, found = found_in(nitfs.nitf(item, ImageSegment(values=VALUES)))
    assert [each.array.name for each in found] == ["images/1/0/data"]
    assert about.attributes["refused"] == [f"image 0: compression {coding} is not supported"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"NROWS": "00000000"}, "is empty"),
        ({"IMODE": "Q"}, "image mode 'Q'"),
        ({"NBPR": "0000"}, "is empty"),
        ({"NCOLS": "00000091"}, "do not cover 91 x 72"),
        ({"NBPP": "65"}, "with 65 bits"),
        ({"NBPP": "16"}, "do not fit"),
        ({"PVTYPE": "R  "}, "'R' with 8 bits"),
        ({"NBANDS": "x"}, "NBANDS holds b'x', which is not a number"),
    ],
)
def test_contradictions_are_refused(changes, message):
    with pytest.raises(FormatError, match=message):
        scan_bytes(nitfs.nitf(ImageSegment(values=VALUES, changes=changes)), scanner=nitf)


GIANT = {"NROWS": "99999999", "NCOLS": "99999999"}


@pytest.mark.parametrize(
    ("changes", "coding"),
    [
        (GIANT | {"NPPBH": "0000", "NPPBV": "0000"}, ""),
        (GIANT | {"NPPBH": "0000", "NPPBV": "0000"}, "C3"),
        (GIANT | {"NPPBH": "0000", "NPPBV": "0000"}, "C8"),
        ({"NBPR": "9999", "NBPC": "9999"}, ""),
        ({"NBPR": "9999", "NBPC": "9999"}, "C3"),
        ({"NBPR": "8000", "NBPC": "8000"}, "C3"),
        ({"NBPR": "8000", "NBPC": "8000"}, "M3"),
        ({"NBPR": "8000", "NBPC": "8000", "NPPBH": "0004", "NPPBV": "0004"}, "C4"),
        ({"NPPBH": "9999", "NPPBV": "9999", "NBPP": "64"}, ""),
    ],
)
def test_images_that_promise_too_much_are_refused_at_once(changes, coding):
    stream = imagecodecs.jpeg8_encode(VALUES[0], 80) if coding != "C8" else imagecodecs.jpeg2k_encode(VALUES[0])
    item = ImageSegment(
        values=VALUES, changes=changes, coding=coding, masked=coding == "M3", streams=[stream] if coding else None
    )
    data = nitfs.nitf(item)
    with pytest.raises((FormatError, LimitError)):
        scan_bytes(data, scanner=nitf, limits=SMALL)
    # Once more, with all modules loaded: next to nothing is allocated.
    tracemalloc.start()
    try:
        with pytest.raises((FormatError, LimitError)):
            scan_bytes(data, scanner=nitf, limits=SMALL)
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    finally:
        tracemalloc.stop()


def test_a_masked_image_may_lack_what_no_block_needs():
    empty, full = (
        nitfs.nitf(ImageSegment(values=VALUES, block=(32, 48), masked=True, absent=frozenset(range(stored, 6)), pad=9))
        for stored in (0, 6)
    )
    assert empty.count(b"0000000035") == 1  # the length of its data: the mask alone
    _, found = found_in(empty.replace(b"0000000035", b"0000065767"))
    assert (len(found[0].refs), found[0].array.fill) == (0, 9)
    with pytest.raises(FormatError, match="the mask has a block that ends past the end of the image"):
        found_in(full[:-1])


def test_a_file_cut_short_is_refused():
    data = nitfs.nitf(ImageSegment(values=VALUES))
    for length in (0, 9, 300, 370, 500, 900, len(data) - 1):
        with pytest.raises(FormatError):
            scan_bytes(data[:length], scanner=nitf)


@lru_cache(maxsize=1)
def _files() -> list[bytes]:
    stream = imagecodecs.jpeg8_encode(VALUES[0], 80)
    code = imagecodecs.jpeg2k_encode(VALUES[0], level=0, codecformat="jp2")
    names = ("plain-u8-P-tiles-3", "masked-u12-S-tiles-3", "plain-f32-B-single-3", "masked-u8-B-tiles-1")
    plain = [nitfs.nitf(nitfs.case(name), version=v) for name in names for v in ("NITF02.10", "NITF02.00")]
    return [
        *plain,
        nitfs.nitf(
            ImageSegment(values=VALUES, tres=tre("RPC00B", rpc()[0]), icords="G", igeolo=LEANING, luts=[bytes(256)])
        ),
        nitfs.nitf(ImageSegment(values=VALUES, streams=[stream], coding="C3")),
        nitfs.nitf(ImageSegment(values=np.tile(VALUES, 2), block=(72, 90), streams=[stream] * 2, coding="C3")),
        nitfs.nitf(ImageSegment(values=VALUES, streams=[stream], coding="M3", masked=True, pad=1)),
        nitfs.nitf(ImageSegment(values=VALUES, streams=[stream], coding="I1")),
        nitfs.nitf(ImageSegment(values=VALUES, streams=[code], coding="C8"), ImageSegment(values=VALUES)),
        nitfs.nitf(ImageSegment(values=VALUES, streams=[imagecodecs.htj2k_encode(VALUES[0])], coding="CD")),
        nitfs.nitf(
            ImageSegment(values=VALUES, tres=tre("BLOCKA", b"01" + b"00072" * 2 + b" " * 111), overflow=1),
            extensions=[tre("RPC00A", rpc()[0]) + tre("GEOLOB", b"000360000000180000+00010.00000000+00045.00000000")],
            tres=tre("PRJPSB", f"{'map':80}TC3{'15':15}{'1':15}{'0':15}{'0':15}{'0':15}".encode()),
        ),
        nitfs.nitf(ImageSegment(values=VALUES, streams=[stream], coding="C3", changes={"COMRAT": "00.2"})),
        nitfs.nitf(
            ImageSegment(values=VALUES[:, :, :80], kind="b1", block=(36, 40), streams=[b"\0\1" * 9] * 4, coding="M1",
                    masked=True, pad=1, changes={"COMRAT": "1D  "})
        ),
    ]  # fmt: skip


@pytest.mark.fuzz
@pytest.mark.parametrize("number", range(FILES))
def test_mutants_give_only_our_errors(number):
    assert len(_files()) == FILES
    data = _files()[number]
    byte, digit = MUTANTS // 3, MUTANTS - MUTANTS // 3
    damaged = [*byte_mutants(data, seed=number, count=byte), *nitfs.digit_mutants(data, seed=number, count=digit)]
    refused = 0
    for place, mutant in enumerate(damaged):
        start = time.process_time()
        try:
            found, asked = watch_scan(nitf, mutant, SMALL, sized=place % 4 > 0)
        except (FormatError, LimitError):
            refused += 1
        else:
            for item in found:
                check_consistent(item, len(mutant), SMALL)
            assert sum(asked) <= 8 * len(mutant) + MIB
        assert time.process_time() - start < 10
    assert 0 < refused < len(damaged)
