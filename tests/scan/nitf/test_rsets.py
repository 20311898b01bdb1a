"""R-sets, sidecars of a NITF file, are levels of its pyramid; those that do not fit are skipped."""

import imagecodecs
import numpy as np
import pytest
import rasterio

from periplus.model import About, Found
from periplus.scan.drive import scan_bytes
from periplus.scan.nitf.rsets import names
from periplus.testing.formats import nitf as nitfs
from periplus.testing.formats.nitf import ImageSegment
from periplus.testing.mutants import byte_mutants

VALUES = nitfs.values_of("u16", 2, (101, 203))
CORNERS = "411900N0200400E411900N0200700E411700N0200700E411700N0200400E"


def file_of(values=VALUES, kind="u16", **options):
    return nitfs.nitf(ImageSegment(values=values, kind=kind, **options))


def scanned(data, sidecars, url="memory:/a.ntf"):
    about, *found = scan_bytes(data, url=url, sidecars=sidecars)
    assert isinstance(about, About)
    assert all(isinstance(each, Found) for each in found)
    return about, found


def test_levels_are_in_their_own_files():
    base = file_of(icords="G", igeolo=CORNERS)
    files = {"a.ntf.r1": file_of(VALUES[:, ::2, ::2], block=(32, 32)), "a.ntf.r2": file_of(VALUES[:, ::4, ::4])}
    _, found = scanned(base, files)
    assert [(f.array.name, f.array.level, f.sidecar) for f in found] == [
        ("0/data", 0, ""),
        ("1/data", 1, "a.ntf.r1"),
        ("2/data", 2, "a.ntf.r2"),
    ]
    a, _, c, _, e, f = found[0].array.georeference.transform
    for level in (1, 2):
        assert found[level].array.georeference.transform == (a * 2**level, 0, c, 0, e * 2**level, f)
        assert found[level].array.georeference.crs == "EPSG:4326"
        end = (found[level].refs.offset + found[level].refs.length).max()
        assert end == len(files[f"a.ntf.r{level}"])


def test_gdal_has_the_same_levels(tmp_path):
    # Of sizes that do not halve, GDAL believes its own rounding more than the file.
    even = VALUES[:, :100, :200]
    sizes = {"a.ntf": even, "a.ntf.r1": even[:, ::2, ::2], "a.ntf.r2": even[:, ::4, ::4]}
    data = {name: file_of(values, icords="G", igeolo=CORNERS) for name, values in sizes.items()}
    for name, content in data.items():
        (tmp_path / name).write_bytes(content)
    _, found = scanned(data.pop("a.ntf"), data)
    for level in (1, 2):
        with rasterio.open(tmp_path / "a.ntf", OVERVIEW_LEVEL=level - 1) as file:
            assert found[level].array.shape == (file.count, file.height, file.width)
            np.testing.assert_allclose(found[level].array.georeference.transform, tuple(file.transform)[:6])
            np.testing.assert_array_equal(file.read(), sizes[f"a.ntf.r{level}"])


@pytest.mark.parametrize(
    ("smaller", "why"),
    [
        (file_of(VALUES[:1, ::2, ::2]), "1 bands of uint16, and the image 2"),
        (file_of(VALUES[:, ::2, ::2].astype("u1"), "u8"), "2 bands of uint8"),
        (file_of(VALUES[:, ::3, ::3]), "68 x 34 pixels are not a reduction of the image's 203 x 101 by a power of two"),
        (file_of(VALUES[:, ::2, ::4]), "51 x 51 pixels are not"),
        (file_of(), "203 x 101 pixels are not"),
        (
            nitfs.nitf(ImageSegment(values=VALUES, kind="u16"), ImageSegment(values=VALUES, kind="u16")),
            "it has 2 images",
        ),
        (b"", "the header ends past"),
        (b"<html>no such page</html>" * 99, "not a NITF file"),
        (file_of(VALUES[:, ::2, ::2])[:-1], "the image ends past the end of the file"),
        (file_of(VALUES[:, ::2, ::2], coding="C7", streams=[b"x"]), "compression C7"),
    ],
)
def test_an_r_set_that_does_not_fit_is_skipped_and_reported(smaller, why):
    about, found = scanned(file_of(), {"a.ntf.r1": smaller})
    assert [each.array.name for each in found] == ["0/data"]
    (refusal,) = about.attributes["refused"]
    assert refusal.startswith("a.ntf.r1: ")
    assert why in refusal


def test_levels_after_one_that_does_not_fit_move_up():
    wrong, right = file_of(VALUES[:1, ::2, ::2]), file_of(VALUES[:, ::4, ::4])
    about, found = scanned(file_of(), {"a.ntf.r1": wrong, "a.ntf.r2": right})
    assert [(f.array.name, f.array.shape, f.sidecar) for f in found[1:]] == [("1/data", (2, 26, 51), "a.ntf.r2")]
    assert len(about.attributes["refused"]) == 1


def test_the_level_of_a_skipped_image_is_that_of_no_other():
    broken = ImageSegment(values=VALUES, kind="u16", coding="C7", streams=[b"x"])
    whole = ImageSegment(values=VALUES, kind="u16")
    half = ImageSegment(values=VALUES[:, ::2, ::2], kind="u16")
    about, found = scanned(nitfs.nitf(broken, whole), {"a.ntf.r1": nitfs.nitf(half)})
    assert [each.array.name for each in found] == ["images/1/0/data"]
    assert about.attributes["refused"][1] == "a.ntf.r1: it belongs to an image that was omitted"
    _, found = scanned(nitfs.nitf(whole, whole), {"a.ntf.r1": nitfs.nitf(half)})
    assert [each.array.name for each in found] == ["0/data", "images/1/0/data", "1/data"]


def test_they_end_where_a_number_is_missing_and_never_grow():
    files = {"a.ntf.r1": file_of(VALUES[:, ::4, ::4]), "a.ntf.r2": file_of(VALUES[:, ::2, ::2]), "a.ntf.r4": file_of()}
    about, found = scanned(file_of(), files)
    assert [each.sidecar for each in found] == ["", "a.ntf.r1"]
    assert "a.ntf.r2: its 102 x 51 pixels" in about.attributes["refused"][0]


def test_sizes_may_be_rounded_either_way():
    for rows, columns in ((51, 102), (50, 101), (50, 102)):
        smaller = file_of(nitfs.values_of("u16", 2, (rows, columns)))
        _, found = scanned(file_of(), {"a.ntf.r1": smaller})
        assert found[1].array.shape == (2, rows, columns)
    _, found = scanned(file_of(), {"a.ntf.r1": file_of(nitfs.values_of("u16", 2, (52, 102)))})
    assert len(found) == 1


def test_each_image_of_a_file_has_its_own():
    two = [ImageSegment(values=VALUES, kind="u16"), ImageSegment(values=VALUES[:, :50], kind="u16")]
    half = [
        ImageSegment(values=VALUES[:, ::2, ::2], kind="u16"),
        ImageSegment(values=VALUES[:, :50:2, ::2], kind="u16"),
    ]
    _, found = scanned(nitfs.nitf(*two), {"a.ntf.r1": nitfs.nitf(*half)})
    assert [each.array.name for each in found] == ["0/data", "images/1/0/data", "1/data", "images/1/1/data"]
    assert found[-1].array.pyramid == "images/1/data"


def test_an_image_with_levels_of_its_own_needs_no_others():
    values = VALUES[0].astype("u1")
    stream = imagecodecs.jpeg2k_encode(values, level=0, codecformat="j2k", resolutions=3)
    item = nitfs.nitf(ImageSegment(values=values[None], streams=[stream], coding="C8"))
    _, found = scanned(item, {"a.ntf.r1": file_of(VALUES[:1, ::2, ::2].astype("u1"), "u8")})
    assert len(found) > 1
    assert not any(each.sidecar for each in found)


def test_what_they_may_be_called():
    assert names("/x/a.ntf", 1) == ("a.ntf.r1",)
    assert names("s3://b/x/a.b.r0", 2) == ("a.b.r2",)
    assert names("/x/A.NTF", 1) == ("A.NTF.R1", "A.NTF.r1")
    assert names("/x/a.ntf.r1", 1) == ()
    assert names("memory:", 1) == ()
    assert names("https://h/a.ntf?x=1", 1) == ()


def test_damaged_r_sets_are_skipped_or_fit():
    base, smaller = file_of(), file_of(VALUES[:, ::2, ::2], block=(32, 32))
    kept = 0
    damaged = [*byte_mutants(smaller, seed=5, count=50), *nitfs.digit_mutants(smaller, seed=5, count=100)]
    for mutant in damaged:
        about, found = scanned(base, {"a.ntf.r1": mutant})
        assert found[0].array.name == "0/data"
        assert len(found) == 2 or about.attributes["refused"]
        if len(found) == 2:
            kept += 1
            assert found[1].array.shape == (2, 51, 102)
            assert (found[1].refs.offset + found[1].refs.length).max() <= len(mutant)
    assert 0 < kept < len(damaged)
