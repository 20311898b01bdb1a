"""stack: order, misfits, differing encodings and packings, gaps, blocks."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from periplus.arrange import FileEntry, arrange, stack
from periplus.arrange.stack import arrays as blocks_module
from periplus.errors import ConflictError
from periplus.model import Encoding, Inline, Refs
from periplus.testing.indexes import inline_list

UNPACK = "periplus.unpack"


def rows(result: Any) -> dict[str, list[tuple[int, ...]]]:
    """(chunk position..., file, offset) of every row, by array, sorted."""
    found: dict[str, list[tuple[int, ...]]] = {}
    for name, refs in result.blocks:
        columns = [*refs.chunk.tolist(), refs.file.tolist(), refs.offset.tolist()]
        found.setdefault(name, []).extend(zip(*columns, strict=True))
    return {name: sorted(each) for name, each in found.items()}


def test_steps_are_ordered_by_the_datetime_of_files(make: SimpleNamespace) -> None:
    array = make.image()
    entries = [
        make.entry("/d/b.tif", array, day=2),
        make.entry("/d/c.tif", array, day=3),
        make.entry("/d/a.tif", array, day=1),
    ]
    result = stack(entries, make.lookup(entries))
    stacked = result.catalog.arrays["0/data"]
    assert stacked.dims == ("time", "bands", "y", "x")
    assert stacked.shape == (3, 1, 64, 64)
    assert stacked.chunks == (1, 1, 32, 32)
    assert stacked.georeference == array.georeference
    assert list(result.files.path) == ["/d/b.tif", "/d/c.tif", "/d/a.tif"]
    times = result.catalog.coordinates["time"].values
    assert times.tolist() == [np.datetime64(f"2021-01-0{d}", "us").item() for d in (1, 2, 3)]
    assert result.catalog.arrangement == {"kind": "stack", "dim": "time", "coordinate": "datetime"}
    first = rows(result)["0/data"][:4]
    assert first == [(0, 0, 0, 0, 2, 20000), (0, 0, 0, 1, 2, 20001), (0, 0, 1, 0, 2, 20002), (0, 0, 1, 1, 2, 20003)]


def test_a_pattern_wins_over_the_datetime(make: SimpleNamespace) -> None:
    array = make.image()
    entries = [make.entry("/d/20210301.tif", array, day=1), make.entry("/d/20210201.tif", array, day=2)]
    result = stack(entries, make.lookup(entries), pattern=r"(?P<time>\d{8})")
    assert result.files.datetime.tolist() == result.catalog.coordinates["time"].values[::-1].tolist()
    assert [row[-2] for row in rows(result)["0/data"][::4]] == [1, 0]
    by_date = stack(entries, make.lookup(entries), pattern=r"(?P<time>\d{8})", coordinate="datetime")
    assert [row[-2] for row in rows(by_date)["0/data"][::4]] == [0, 1]


def test_a_dimension_of_numbers(make: SimpleNamespace) -> None:
    array = make.image()
    entries = [make.entry(f"/d/z{z}.tif", array) for z in (10, 2)]
    result = stack(entries, make.lookup(entries), pattern=r"z(?P<depth>\d+)")
    assert result.catalog.coordinates["depth"].values.tolist() == [2, 10]
    assert result.catalog.arrays["0/data"].dims[0] == "depth"
    assert np.isnat(result.files.datetime).all()


def test_no_coordinate_counts_and_warns(make: SimpleNamespace) -> None:
    array = make.image()
    entries = [make.entry("/d/b.tif", array), make.entry("/d/a.tif", array)]
    result = stack(entries, make.lookup(entries))
    assert result.catalog.coordinates["time"].values.tolist() == [0, 1]
    assert "counts them in the order" in result.warnings[0]
    assert arrange(entries, make.lookup(entries)).kind == "collect"


def test_an_order_that_was_asked_for_is_no_reason_to_warn(make: SimpleNamespace) -> None:
    array = make.image()
    entries = [make.entry(f"/d/s_2021010{n}.tif", array, day=n) for n in (2, 1)]
    result = stack(entries, make.lookup(entries), coordinate="order")
    assert result.catalog.coordinates["time"].values.tolist() == [0, 1]
    assert result.warnings == ()


def test_equal_coordinates_name_both(make: SimpleNamespace) -> None:
    array = make.image()
    entries = [make.entry(f"/d/{n}.tif", array, day=1) for n in "ab"] + [make.entry("/d/c.tif", array, day=2)]
    with pytest.raises(ConflictError, match=r"b\.tif and a\.tif have the same time 2021-01-01"):
        stack(entries, make.lookup(entries))
    kept = stack(entries, make.lookup(entries), duplicates="keep")
    assert kept.catalog.arrays["0/data"].shape[0] == 3
    last = stack(entries, make.lookup(entries), duplicates="last")
    assert last.catalog.arrays["0/data"].shape[0] == 2
    assert list(last.files.status) == ["error", "ok", "ok"]
    assert "b.tif has the same time" in (last.files.error[0] or "")
    assert {row[-2] for row in rows(last)["0/data"]} == {1, 2}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shape": (1, 60, 64)}, r"0/data has shape \(1, 60, 64\), not \(1, 64, 64\)"),
        ({"chunks": (1, 16, 64)}, r"0/data has chunks \(1, 16, 64\), not \(1, 32, 32\)"),
        ({"dtype": np.dtype(np.uint8)}, "0/data has type uint8, not int16"),
        ({"dims": ("z", "y", "x")}, r"0/data has dimensions \(z, y, x\), not \(bands, y, x\)"),
        ({"name": "1/data"}, "it has no 0/data"),
    ],
)
def test_the_first_misfit_is_named_and_how(make: SimpleNamespace, change: dict[str, Any], message: str) -> None:
    array = make.image()
    entries = [make.entry("/d/a.tif", array, day=1), make.entry("/d/b.tif", replace(array, **change), day=2)]
    with pytest.raises(ConflictError, match=r"b\.tif differs from a\.tif: " + message) as caught:
        stack(entries, make.lookup(entries))
    assert caught.value.url == "/d/b.tif"
    assert arrange(entries, make.lookup(entries)).kind == "collect"


def test_places_and_levels_must_agree(make: SimpleNamespace) -> None:
    array = make.image()
    place = array.georeference
    for georeference, message in (
        (replace(place, crs="EPSG:4326"), "CRS EPSG:4326, not EPSG:32633"),
        (replace(place, transform=(10.0, 0.0, 500000.1, 0.0, -10.0, 5000000.0)), "transform"),
        (None, "CRS none"),
    ):
        entries = [
            make.entry("/d/a.tif", array, day=1),
            make.entry("/d/b.tif", replace(array, georeference=georeference), day=2),
        ]
        with pytest.raises(ConflictError, match=message):
            stack(entries, make.lookup(entries))
    overview = make.image("1/data", size=32, level=1)
    entries = [make.entry("/d/a.tif", array, overview, day=1), make.entry("/d/b.tif", array, day=2)]
    with pytest.raises(ConflictError, match="it has no 1/data"):
        stack(entries, make.lookup(entries))
    entries.reverse()
    with pytest.raises(ConflictError, match="it has 1/data as well"):
        stack(entries, make.lookup(entries))


def test_noise_in_the_transform_is_no_difference(make: SimpleNamespace) -> None:
    array = make.image()
    moved = replace(array.georeference, transform=(10.0 + 1e-9, 0.0, 500000.0 + 1e-6, 0.0, -10.0, 5000000.0))
    entries = [make.entry("/d/a.tif", array, day=1), make.entry("/d/b.tif", replace(array, georeference=moved), day=2)]
    assert stack(entries, make.lookup(entries)).catalog.arrays["0/data"].shape[0] == 2


def test_skipped_misfits_are_rows_and_the_usual_structure_wins(make: SimpleNamespace) -> None:
    odd, usual = make.image(size=32), make.image()
    entries = [make.entry("/d/a.tif", odd, day=1)] + [
        make.entry(f"/d/{n}.tif", usual, day=k) for k, n in enumerate("bcd", 2)
    ]
    result = stack(entries, make.lookup(entries), skip_misfits=True)
    assert result.catalog.arrays["0/data"].shape == (3, 1, 64, 64)
    assert "a.tif differs from b.tif" in (result.files.error[0] or "")
    assert set(result.misfits) == {0}


def test_encodings_may_differ(make: SimpleNamespace) -> None:
    transposed = ({"name": "transpose", "configuration": {"order": [1, 2, 0]}}, *make.codecs)
    a, b = make.image(), make.image(codecs=transposed)
    entries = [make.entry("/d/a.tif", a, day=1), make.entry("/d/b.tif", b, day=2), make.entry("/d/c.tif", a, day=3)]
    result = stack(entries, make.lookup(entries))
    encodings = result.catalog.arrays["0/data"].encodings
    assert encodings[0] == Encoding(tuple(make.codecs))
    assert encodings[1].codecs[0]["configuration"]["order"] == [0, 2, 3, 1]
    ((_, refs),) = result.blocks
    assert refs.encoding is not None
    assert refs.encoding.tolist() == [0] * 4 + [1] * 4 + [0] * 4


def test_files_own_encoding_numbers_are_translated(make: SimpleNamespace) -> None:
    other = Encoding(({"name": "bytes"},))
    a, b = make.image(), replace(make.image(), encodings=(other, Encoding(tuple(make.codecs))))
    entries = [make.entry("/d/a.tif", a, day=1), make.entry("/d/b.tif", b, day=2)]
    plain = make.lookup(entries)

    def lookup(number: int, which: int) -> Refs:
        refs = plain(number, which)
        return refs if number == 0 else replace(refs, encoding=np.array([0, 1, 1, 0], np.uint16))

    result = stack(entries, lookup)
    assert result.catalog.arrays["0/data"].encodings == (Encoding(tuple(make.codecs)), other)
    ((_, refs),) = result.blocks
    assert refs.encoding is not None
    assert refs.encoding.tolist() == [0, 0, 0, 0, 1, 0, 0, 1]


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(np.uint8, np.float32), (np.int16, np.float32), (np.int32, np.float64), (np.float32, np.float32)],
)
def test_differing_packings_become_physical_values(make: SimpleNamespace, dtype: Any, expected: Any) -> None:
    a = make.packed(make.image(dtype=dtype, attributes={"units": "K"}), nodata=0, scale=0.5)
    b = make.packed(make.image(dtype=dtype, attributes={"units": "K"}), nodata=1)
    entries = [make.entry("/d/a.tif", a, day=1), make.entry("/d/b.tif", b, day=2)]
    result = stack(entries, make.lookup(entries))
    stacked = result.catalog.arrays["0/data"]
    assert stacked.dtype == expected
    assert np.isnan(stacked.fill)
    assert np.isnan(stacked.attributes["_FillValue"])
    assert {**stacked.attributes, "_FillValue": None} == {"_FillValue": None, "units": "K"}
    assert [e.codecs[0]["name"] for e in stacked.encodings] == [UNPACK, UNPACK]
    settings = stacked.encodings[0].codecs[0]["configuration"]
    assert settings == {"dtype": np.dtype(dtype).str, "nodata": 0, "scale": 0.5, "offset": None}
    assert stacked.encodings[0].codecs[1:] == tuple(make.codecs)


@pytest.mark.parametrize("kind", ["stack", "mosaic"])
def test_values_of_each_band_need_chunks_of_all_bands(make: SimpleNamespace, kind: str) -> None:
    def entries(bands: int) -> list[FileEntry]:
        image = make.image(shape=(2, 64, 64), chunks=(bands, 32, 32))
        place = image.georeference
        moved = replace(place, transform=(10.0, 0.0, 500000.0 + (640 if kind == "mosaic" else 0), *place.transform[3:]))
        files = [make.packed(image, offset=[0.0, 1.0]), make.packed(replace(image, georeference=moved), offset=5.0)]
        return [make.entry(f"/d/{k}.tif", array, day=k + 1) for k, array in enumerate(files)]

    together, apart = entries(2), entries(1)
    (encoding, _) = arrange(together, make.lookup(together), kind=kind).catalog.arrays["0/data"].encodings
    assert encoding.codecs[0]["configuration"]["offset"] == [0.0, 1.0]
    with pytest.raises(ConflictError, match=r"0/data has 2 offsets.*does not hold all bands"):
        arrange(apart, make.lookup(apart), kind=kind)
    laid = arrange(apart, make.lookup(apart))
    assert laid.kind == "collect"


@pytest.mark.parametrize(("nodata", "notes"), [(1, 0), (2, 1)])
def test_a_note_says_that_values_become_physical(make: SimpleNamespace, nodata: int, notes: int) -> None:
    arrays = [make.packed(make.image(), each) for each in (1, nodata)]
    entries = [make.entry(f"/d/{k}.tif", array, day=k + 1) for k, array in enumerate(arrays)]
    warnings = stack(entries, make.lookup(entries)).warnings
    assert sum("0/data has physical values, as float32 with NaN" in warning for warning in warnings) == notes


def test_equal_packings_stay_raw(make: SimpleNamespace) -> None:
    arrays = [make.packed(make.image(dtype=np.float32), nodata=float("nan"), scale=2.0) for _ in range(2)]
    entries = [make.entry(f"/d/{k}.tif", array, day=k + 1) for k, array in enumerate(arrays)]
    stacked = stack(entries, make.lookup(entries)).catalog.arrays["0/data"]
    assert len(stacked.encodings) == 1
    assert stacked.attributes["scale_factor"] == 2.0
    assert np.isnan(stacked.attributes["_FillValue"])


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.complex64])
def test_values_no_float_holds_are_refused(make: SimpleNamespace, dtype: Any) -> None:
    a, b = make.packed(make.image(dtype=dtype), nodata=0), make.packed(make.image(dtype=dtype), nodata=1)
    entries = [make.entry("/d/a.tif", a, day=1), make.entry("/d/b.tif", b, day=2)]
    with pytest.raises(ConflictError, match="no float type holds every"):
        stack(entries, make.lookup(entries))


def test_a_zero_is_never_shown_as_a_hole(make: SimpleNamespace) -> None:
    a, b = make.packed(make.image(), nodata=5), make.image()
    entries = [make.entry("/d/a.tif", a, day=1), make.entry("/d/b.tif", b, day=2)]
    assert stack(entries, make.lookup(entries, missing=[(0, 1)])).kind == "stack"
    with pytest.raises(ConflictError, match=r"b\.tif has missing chunks and no nodata"):
        stack(entries, make.lookup(entries, missing=[(1, 1)]))
    skipped = stack(entries, make.lookup(entries, missing=[(1, 1)]), skip_misfits=True)
    assert skipped.catalog.arrays["0/data"].dtype == np.int16


def test_only_what_all_files_say_is_kept(make: SimpleNamespace) -> None:
    a, b = make.image(attributes={"units": "K", "title": "a"}), make.image(attributes={"units": "K", "title": "b"})
    entries = [
        make.entry("/d/a.tif", a, day=1, attributes={"sensor": "x", "run": 1}),
        make.entry("/d/b.tif", b, day=2, attributes={"sensor": "x", "run": 2}),
    ]
    catalog = stack(entries, make.lookup(entries)).catalog
    assert catalog.arrays["0/data"].attributes == {"units": "K"}
    assert catalog.attributes == {"": {"sensor": "x"}}


def test_of_a_table_of_fields_those_are_kept_that_all_files_have(make: SimpleNamespace) -> None:
    tables = ({"ISCLAS": "S", "IID1": "a", "n": np.nan}, {"ISCLAS": "S", "IID1": "b", "n": np.nan}, "none")
    images = [make.image(attributes={"nitf": table, "other": {"n": k}}) for k, table in enumerate(tables)]
    entries = [make.entry(f"/d/{day}.tif", image, day=day) for day, image in enumerate(images, 1)]
    for number, names in ((2, ["ISCLAS", "n"]), (3, [])):
        found = stack(entries[:number], make.lookup(entries[:number])).catalog.arrays["0/data"].attributes
        assert list(found.get("nitf", {})) == names
        assert "other" not in found


def test_series_share_the_axis_and_gaps_are_holes(make: SimpleNamespace) -> None:
    red, blue = make.image(), make.packed(make.image(size=32), nodata=9)
    entries = [
        make.entry("/d/r1.tif", red, day=1, series="red"),
        make.entry("/d/b1.tif", blue, day=1, series="blue"),
        make.entry("/d/b2.tif", blue, day=2, series="blue"),
        make.entry("/d/r3.tif", red, day=3, series="red"),
    ]
    result = stack(entries, make.lookup(entries))
    arrays = result.catalog.arrays
    assert arrays["red/0/data"].shape == (3, 1, 64, 64)
    assert arrays["blue/0/data"].shape == (3, 1, 32, 32)
    assert arrays["red/0/data"].dtype == np.float32, "no nodata, so a missing step is NaN"
    assert arrays["blue/0/data"].dtype == np.int16
    assert arrays["blue/0/data"].fill == 9
    found = rows(result)
    assert {row[0] for row in found["red/0/data"]} == {0, 2}
    assert {row[0] for row in found["blue/0/data"]} == {0, 1}


def test_auto_stacks_only_what_is_one_grid_with_coordinates(make: SimpleNamespace) -> None:
    array = make.image()
    entries = [make.entry(f"/d/{k}.tif", array, day=k) for k in (1, 2)]
    assert arrange(entries, make.lookup(entries)).kind == "stack"
    assert arrange(entries[:1], make.lookup(entries)).kind == "collect"
    same = [make.entry(f"/d/{k}.tif", array, day=1) for k in (1, 2)]
    collected = arrange(same, make.lookup(same))
    assert collected.kind == "collect"
    assert collected.warnings[0].startswith("not stacked: 2.tif and 1.tif have the same time")
    partly = [*entries, make.entry("/d/3.tif", array)]
    assert arrange(partly, make.lookup(partly)).kind == "collect"
    assert arrange(partly, make.lookup(partly), skip_misfits=True).kind == "stack"


def test_auto_says_why_files_that_look_like_a_stack_are_none(make: SimpleNamespace) -> None:
    entries = [make.entry("/d/1.tif", make.image(), day=1), make.entry("/d/2.tif", make.image(size=32), day=2)]
    (why,) = arrange(entries, make.lookup(entries)).warnings
    assert why.startswith("not stacked: 2.tif differs from 1.tif: 0/data has shape")
    mixed = [make.entry("/d/0.dt0", make.image(size=48)), *entries]
    assert arrange(mixed, make.lookup(mixed)).warnings == (why,)  # no advice to date what would not fit either
    named = [make.entry(f"/d/2021010{k}.tif", make.image()) for k in (1, 2)]
    (hint,) = arrange(named, make.lookup(named)).warnings
    assert hint.endswith("pattern='{time:%Y%m%d}'")
    assert arrange(named, make.lookup(named), pattern="{time:%Y%m%d}").kind == "stack"
    assert stack(named, make.lookup(named)).warnings[0].endswith("pattern='{time:%Y%m%d}'")
    unlike = [make.entry(f"/d/2021010{k}.tif", make.image(size=32 * k)) for k in (1, 2)]
    assert not arrange(unlike, make.lookup(unlike)).warnings


def test_bands_in_another_order_are_other_bands(make: SimpleNamespace) -> None:
    def named(k: int, *names: str) -> Any:
        return make.entry(f"/d/{k}.tif", make.image(attributes={"band_names": list(names)}), day=k)

    turned = [named(1, "red", "blue"), named(2, "blue", "red")]
    with pytest.raises(ConflictError, match=r"2\.tif differs.*bands \(blue, red\), not \(red, blue\)"):
        stack(turned, make.lookup(turned))
    for other in (named(2, "red", "blue"), named(2, "B04", "B02"), named(2)):
        entries = [named(1, "red", "blue"), other]
        assert stack(entries, make.lookup(entries)).kind == "stack"


def test_masks_are_neither_unpacked_nor_optional(make: SimpleNamespace) -> None:
    mask = make.image("0/mask", dtype=np.uint8)
    a, b = make.packed(make.image(), nodata=1), make.packed(make.image(), nodata=2)
    entries = [make.entry("/d/a.tif", a, mask, day=1), make.entry("/d/b.tif", b, mask, day=2)]
    assert stack(entries, make.lookup(entries)).catalog.arrays["0/mask"].dtype == np.uint8
    entries[1] = make.entry("/d/b.tif", b, day=2)
    with pytest.raises(ConflictError, match="it has no 0/mask"):
        stack(entries, make.lookup(entries))


def test_a_dimension_of_the_files_own_is_not_taken(make: SimpleNamespace) -> None:
    entries = [make.entry(f"/d/{k}.tif", make.image(), day=k) for k in (1, 2)]
    with pytest.raises(ValueError, match="already has a dimension 'x'"):
        stack(entries, make.lookup(entries), dim="x")


def test_blocks_are_bounded_and_complete(make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    array = make.image(size=64, chunks=(1, 8, 8))
    entries = [make.entry(f"/d/{k}.tif", array, day=k + 1) for k in range(7)]
    whole = rows(stack(entries, make.lookup(entries)))
    monkeypatch.setattr(blocks_module, "STEPS", 3)
    monkeypatch.setattr(blocks_module, "ROWS", 60)
    result = stack(entries, make.lookup(entries))
    blocks = list(result.blocks)
    assert max(len(refs) for _, refs in blocks) <= 60
    assert max(len(np.unique(refs.chunk[0])) for _, refs in blocks) == 3
    assert rows(SimpleNamespace(blocks=blocks)) == whole


def test_inline_bytes_and_parts_pass_through(make: SimpleNamespace) -> None:
    array = make.image(size=32, chunks=(1, 32, 32))
    entries = [make.entry(f"/d/{k}.tif", array, day=k + 1) for k in range(2)]

    def lookup(number: int, which: int) -> Refs:
        if number == 0:
            return Refs(chunk=np.zeros((3, 1), np.int32), offset=np.array([5]), length=np.array([6]))
        return Refs(
            chunk=np.zeros((3, 2), np.int32),
            offset=np.array([0, 9]),
            length=np.array([2, 4]),
            part=np.array([0, 1], np.uint16),
            inline=Inline.of([b"xy", None]),
        )

    ((_, refs),) = stack(entries, lookup).blocks
    assert refs.file is not None
    assert refs.part is not None
    assert refs.file.tolist() == [0, -1, 1]
    assert refs.part.tolist() == [0, 0, 1]
    assert inline_list(refs) == [None, b"xy", None]


def test_one_crs_may_have_other_words(make: SimpleNamespace) -> None:
    from pyproj import CRS

    place = make.image().georeference
    entries = [
        make.entry(f"/d/{n}.tif", make.image(georeference=replace(place, crs=crs)), day=n + 1)
        for n, crs in enumerate(("EPSG:32633", CRS("EPSG:32633").to_wkt()))
    ]
    assert arrange(entries, make.lookup(entries)).kind == "stack"
    entries.append(make.entry("/d/2.tif", make.image(georeference=replace(place, crs="EPSG:32634")), day=3))
    with pytest.raises(ConflictError, match="has the CRS EPSG:32634, not EPSG:32633"):
        arrange(entries, make.lookup(entries), kind="stack")
