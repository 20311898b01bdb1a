"""What URLs mean: files, globs, folders, lists, STAC."""

from __future__ import annotations

import contextlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import periplus
from periplus.errors import DeniedError, FormatError, MissingError, PeriplusError
from periplus.fetch import Fetch
from periplus.harvest import stac
from periplus.harvest.inputs import Input, InputNotes, expand, is_glob, is_literal, joined
from periplus.testing.scenes import tile

COG = "image/tiff; application=geotiff; profile=cloud-optimized"


def expanded(fetch: Fetch, *urls: str | Path, **options: Any) -> list[Input]:
    async def drawn() -> list[Input]:
        return [item async for item in expand([str(url) for url in urls], fetch, **options)]

    return fetch.run(drawn())


def item(name: str, moment: str | None = "2021-03-04T05:06:07Z", **assets: Any) -> dict[str, Any]:
    return {
        "type": "Feature",
        "stac_version": "1.0.0",
        "id": name,
        "properties": {"datetime": moment},
        "assets": assets,
        "links": [],
    }


def asset(href: str, *roles: str, kind: str | None = COG) -> dict[str, Any]:
    return {"href": href, **({"type": kind} if kind else {}), **({"roles": list(roles)} if roles else {})}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("a.tif", "b.tif", "sub/c.tif", "notes.md"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    return tmp_path


def names(items: list[Input], root: Path) -> list[str]:
    return [Path(i.url).relative_to(root).as_posix() for i in items]


def test_a_bucket_or_a_folder_of_one_needs_no_slash_at_its_end() -> None:
    with Fetch() as fetch:
        for name in ("a/b.tif", "a/v1.0/c.tif", "c/plain", "c/plain/d.tif"):
            fetch.run(fetch.write(f"memory://{name}", b"x"))

        def found(url: str) -> list[str]:
            return sorted(each.url for each in expanded(fetch, url))

        assert found("memory://a") == found("memory://a/") == ["memory://a/b.tif", "memory://a/v1.0/c.tif"]
        assert found("memory://a/v1.0") == ["memory://a/v1.0/c.tif"]
        assert found("memory://c/plain") == ["memory://c/plain"]  # an object of that name comes first
        assert found("memory://c/none") == ["memory://c/none"]  # it becomes a row that says so
        assert all(each.optional for each in expanded(fetch, "memory://a"))


def test_a_file_a_glob_and_a_folder(fetch: Fetch, tree: Path) -> None:
    (one,) = expanded(fetch, tree / "a.tif")
    assert one.source is not None
    assert one.source.size == 1
    assert not one.optional
    assert names(expanded(fetch, tree / "*.tif"), tree) == ["a.tif", "b.tif"]
    assert names(expanded(fetch, tree / "**/*.tif"), tree) == ["a.tif", "b.tif", "sub/c.tif"]
    folder = expanded(fetch, f"{tree}/")
    assert names(folder, tree) == ["a.tif", "b.tif", "notes.md", "sub/c.tif"]
    assert all(i.optional for i in folder)
    assert expanded(fetch, tree) == folder
    assert all(i.optional for i in expanded(fetch, tree / "*"))
    assert not any(i.optional for i in expanded(fetch, tree / "*.tif"))
    assert all(i.optional for i in expanded(fetch, tree / "a*"))  # whatever kind they are
    for name in ("a.tif.aux.xml", "a.PRJ", "a.jgw", "a.raw"):
        (tree / name).write_bytes(b"x")
    spelt = expanded(fetch, *sorted(tree.glob("a.*")))
    assert [i.optional for i in spelt if i.url.endswith((".tif", ".raw"))] == [False, False]
    assert [i.optional for i in spelt if i.url.endswith((".xml", ".PRJ", ".jgw"))] == [True] * 3
    (remote,) = expanded(fetch, "http://example.com/a.tif.aux.xml")
    assert remote.optional


def test_an_absent_file_is_still_an_input_and_an_absent_folder_an_error(fetch: Fetch, tree: Path) -> None:
    assert [i.url for i in expanded(fetch, tree / "no.tif")] == [f"{tree}/no.tif"]
    with pytest.raises(MissingError):
        expanded(fetch, f"{tree}/no/")
    notes = InputNotes()
    assert expanded(fetch, tree / "*.jp2", notes=notes) == []
    assert "nothing matches" in notes.warnings[0]


def test_remote_names_are_not_asked_for_one_by_one(fetch: Fetch) -> None:
    urls = ["s3://bucket/a.tif", "https://example.invalid/a[1].tif?x=*"]
    assert [i.url for i in expanded(fetch, *urls)] == urls
    with pytest.raises(FormatError, match="no listing"):
        expanded(fetch, "https://example.invalid/*.tif")


def test_a_text_list(fetch: Fetch, tree: Path) -> None:
    listing = tree / "list.txt"
    listing.write_text(f"# comment\n\na.tif\n  {tree}/b.tif  \r\ns3://bucket/x.tif\nsub/*.tif\n")
    assert [i.url for i in expanded(fetch, listing)] == [
        f"{tree}/a.tif",
        f"{tree}/b.tif",
        "s3://bucket/x.tif",
        f"{tree}/sub/c.tif",
    ]
    listing.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FormatError, match="UTF-8"):
        expanded(fetch, listing)


@pytest.mark.parametrize(
    ("base", "href", "expected"),
    [
        ("/d/items/i.json", "a.tif", "/d/items/a.tif"),
        ("/d/items/i.json", "../a.tif", "/d/a.tif"),
        ("/d/items/i.json", "./x/", "/d/items/x/"),
        ("/d/i.json", "/e/a.tif", "/e/a.tif"),
        ("/d/i.json", "https://h/a.tif", "https://h/a.tif"),
        ("https://h/c/i.json", "a.tif?x=/../y", "https://h/c/a.tif?x=/../y"),
        ("https://h/c/i.json", "../../../a.tif", "https://h/a.tif"),
        ("https://h/c/i.json", "/etc/passwd", "https://h/etc/passwd"),
        ("s3://b/c/i.json", "../a.tif", "s3://b/a.tif"),
    ],
)
def test_references_are_relative_to_their_document(base: str, href: str, expected: str) -> None:
    assert joined(base, href) == expected


def test_a_remote_document_names_no_local_file() -> None:
    with pytest.raises(DeniedError):
        joined("https://h/c/i.json", "file:///etc/passwd")


def test_an_item(fetch: Fetch, tmp_path: Path) -> None:
    path = tmp_path / "item.json"
    path.write_text(
        json.dumps(
            item(
                "one",
                thumbnail=asset("t.tif", "thumbnail"),
                data=asset("x/a.tif", "data"),
                meta=asset("m.xml", kind="text/xml"),
            )
        )
    )
    (found,) = expanded(fetch, path)
    assert found == Input(url=f"{tmp_path}/x/a.tif", datetime=datetime(2021, 3, 4, 5, 6, 7, tzinfo=UTC), group="one")


def test_items_of_a_response_use_their_own_address(fetch: Fetch, tmp_path: Path) -> None:
    one, two = item("one", data=asset("a.tif", kind=None)), item("two", None, data=asset("https://h/b.tif", "data"))
    one["links"] = [{"rel": "self", "href": "https://h/items/one"}]
    two["properties"]["start_datetime"] = "2020-01-01T00:00:00+01:00"
    path = tmp_path / "response.json"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": [one, two]}))
    found = expanded(fetch, path)
    assert [i.url for i in found] == ["https://h/items/a.tif", "https://h/b.tif"]
    assert found[1].datetime == datetime(2019, 12, 31, 23, tzinfo=UTC)


def test_assets_are_chosen_by_name_pattern_or_question(fetch: Fetch, tmp_path: Path) -> None:
    bands = {name: asset(f"{name}.tif", "data") for name in ("B02", "B03", "B11")}
    path = tmp_path / "item.json"
    path.write_text(json.dumps(item("one", **bands)))
    with pytest.raises(FormatError, match=r"'one' has 3 GeoTIFF assets \(B02, B03, B11\); choose"):
        expanded(fetch, path)
    (single,) = expanded(fetch, path, assets="B03")
    assert (single.group, single.series) == ("one", None)
    several = expanded(fetch, path, assets=["B02", "B11"])
    assert [(i.group, i.series) for i in several] == [("one/B02", "B02"), ("one/B11", "B11")]
    assert [i.series for i in expanded(fetch, path, assets="B0*")] == ["B02", "B03"]
    asked = expanded(fetch, path, assets=lambda name, about: name == "B11" and "data" in about["roles"])
    assert [i.series for i in asked] == ["B11"]
    with pytest.raises(FormatError, match="the assets are B02, B03, B11"):
        expanded(fetch, path, assets="red")


def test_items_without_the_asset_are_counted(fetch: Fetch, tmp_path: Path) -> None:
    path = tmp_path / "items.json"
    features = [item("one", red=asset("r.tif")), item("two", blue=asset("b.tif"))]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    notes = InputNotes()
    assert len(expanded(fetch, path, assets="red", notes=notes)) == 1
    assert notes.skipped == 1


def test_an_item_without_a_geotiff_says_what_it_has(fetch: Fetch, tmp_path: Path) -> None:
    path = tmp_path / "item.json"
    path.write_text(json.dumps(item("one", meta=asset("m.xml", kind="text/xml"))))
    with pytest.raises(FormatError, match="no GeoTIFF asset; its assets are meta"):
        expanded(fetch, path)


def test_one_item_of_many_that_cannot_be_used_is_one_failure(fetch: Fetch, tmp_path: Path) -> None:
    bad = [
        item("none", meta=asset("m.xml", kind="text/xml")),
        item("two", a=asset("a.tif"), b=asset("b.tif")),
        item("when", "soon", data=asset("c.tif")),
    ]
    path = tmp_path / "items.json"
    features = [bad[0], item("good", data=asset("good.tif", "data")), *bad[1:]]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    found = expanded(fetch, path)
    assert [Path(i.url).name for i in found] == ["good.tif", *["items.json"] * 3]
    assert [i.error.message.split(" ", 2)[1] for i in found if i.error is not None] == ["'none'", "'two'", "'when'"]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": bad}))
    with pytest.raises(FormatError, match="'none' has no GeoTIFF asset"):
        expanded(fetch, path)


def test_the_run_goes_on_after_an_item_that_cannot_be_used(tmp_path: Path) -> None:
    scene = tile(tmp_path / "good.tif", 0, 0)
    good, bad = item("good", data=asset(scene.name, "data")), item("bad", meta=asset("m.xml", kind="text/xml"))
    (tmp_path / "items.json").write_text(json.dumps({"type": "FeatureCollection", "features": [bad, good]}))
    for name, each in (("one", good), ("two", bad)):
        (tmp_path / "items").mkdir(exist_ok=True)
        each["assets"] |= {k: {**v, "href": f"../{scene.name}"} for k, v in each["assets"].items() if k == "data"}
        (tmp_path / "items" / f"{name}.json").write_text(json.dumps(each))
    (tmp_path / "items" / "three.json").write_text("{")
    each_item = sorted((tmp_path / "items").glob("*.json"))
    for urls, failed in ((tmp_path / "items.json", 1), (tmp_path / "items" / "*.json", 2), (each_item, 2)):
        with periplus.index(urls) as index:
            assert index.summary is not None
            assert (index.summary.ok, index.summary.failed, index.summary.files) == (1, failed, 1 + failed)
            assert any("item 'bad' has no GeoTIFF asset" in error for _, error in index.summary.errors)
            assert index.table.rows


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not JSON"),
        ("[1]", "neither a STAC Item"),
        ("[" * 100_000, "nested too deeply"),
        ('{"type": "Catalog"}', "give its items"),
        ('{"type": "FeatureCollection", "features": [{"type": "Feature"}]}', "not STAC items"),
        ('{"type": "Feature", "id": "x", "assets": {"d": {"type": "image/tiff"}}}', "no href"),
        ('{"type":"Feature","id":"x","properties":{"datetime":"soon"},"assets":{"d":{"href":"a.tif"}}}', "datetime"),
    ],
)
def test_bad_documents_are_format_errors(fetch: Fetch, tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(FormatError, match=why):
        expanded(fetch, path)


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=6)
    | st.sampled_from(["http://[::1", "0001-01-01T00:00:00+05:00", "image/tiff", "a.tif", "data", "//", "file:x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(data=st.data())
def test_an_item_that_holds_anything_gives_only_our_errors(data: st.DataObject) -> None:
    whole = item("one", data=asset("a.tif", "data"), meta=asset("m.xml", kind=None))
    place = whole
    keys = data.draw(st.sampled_from([
        ("assets",), ("assets", "data"), ("assets", "data", "href"), ("assets", "data", "type"), ("links",),
        ("assets", "data", "roles"), ("assets", "meta", "href"), ("properties",), ("properties", "datetime"), ("id",),
    ]))  # fmt: skip
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = data.draw(ANYTHING)
    for wanted in (None, "data", ["d*"], lambda _name, described: "href" in described):
        with contextlib.suppress(PeriplusError):
            for chosen in stac.choose(whole, wanted, "/d/i.json"):
                joined(stac.base_of(whole, "https://h/i.json", alone=False), chosen.href)


def test_a_glob_of_items(fetch: Fetch, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps(item(name, data=asset(f"{name}.tif", "data"))))
    assert [i.group for i in expanded(fetch, tmp_path / "*.json")] == ["a", "b"]


def test_stac_geoparquet(fetch: Fetch, tmp_path: Path) -> None:
    moments = [datetime(2021, 1, 1, tzinfo=UTC), datetime(2021, 1, 2, tzinfo=UTC)]
    table = pa.table(
        {
            "id": ["one", "two"],
            "datetime": pa.array(moments, pa.timestamp("ns", "UTC")),
            "assets": [
                {"red": asset("r1.tif", "data"), "meta": None},
                {"red": None, "meta": asset("https://h/m.tif", "data")},
            ],
            "geometry": [b"", b""],
        }
    )
    path = tmp_path / "items.parquet"
    pq.write_table(table, path)
    found = expanded(fetch, path)
    assert [(i.url, i.datetime, i.group) for i in found] == [
        (f"{tmp_path}/r1.tif", moments[0], "one"),
        ("https://h/m.tif", moments[1], "two"),
    ]
    pq.write_table(pa.table({"id": ["one"], "assets": ["{}"]}), path)
    with pytest.raises(FormatError, match="no GeoTIFF asset"):
        expanded(fetch, path)
    pq.write_table(pa.table({"x": [1]}), path)
    with pytest.raises(FormatError, match="no column 'assets'"):
        expanded(fetch, path)
    path.write_bytes(b"PAR1")
    with pytest.raises(FormatError, match="cannot be read"):
        expanded(fetch, path)


def test_what_is_a_pattern_and_what_one_file() -> None:
    assert is_glob("/d/*.tif")
    assert is_glob("s3://b/a?.tif")
    assert not is_glob("https://h/a.tif?x=[1]")
    assert is_literal("https://h/a.tif?x=1")
    assert not any(map(is_literal, ("/d/", "/d/*.tif", "/d/list.txt", "/d/item.json")))


def test_unchanged_files_of_items_are_not_read_again(tmp_path: Path) -> None:
    scene = tile(tmp_path / "good.tif", 0, 0)
    (tmp_path / "item.json").write_text(json.dumps(item("good", data=asset(scene.name, "data"))))
    periplus.index(tmp_path / "item.json", to=tmp_path / "index").close()
    with periplus.index(tmp_path / "item.json", to=tmp_path / "index") as index:
        assert index.summary is not None
        assert index.summary.reused == 1
    tile(scene, 1, 1)
    os.utime(scene, (1, 1))
    with periplus.index(tmp_path / "item.json", to=tmp_path / "index") as index:
        assert index.summary is not None
        assert index.summary.reused == 0


def test_a_folder_of_stac_items_is_a_folder_of_their_assets(tmp_path: Path) -> None:
    folder = tmp_path / "items"
    (folder / "deeper").mkdir(parents=True)
    (folder / "catalog.json").write_text('{"type": "Catalog"}')
    (folder / "settings.json").write_text("[1, 2]")
    for n, place in enumerate(("one.json", "deeper/two.geojson")):
        scene = tile(tmp_path / f"{n}.tif", 0, n)
        each = item(f"item{n}", f"2021-0{n + 1}-01T00:00:00Z", data=asset(str(scene), "data"), red=asset(str(scene)))
        (folder / place).write_text(json.dumps(each))
    with periplus.index(folder) as index:
        assert (index.summary.ok, index.summary.failed, index.summary.skipped) == (2, 0, 2)
        assert not np.isnat(index.table.files.datetime).any()
    with periplus.index(folder, assets="red") as index:
        assert index.summary.ok == 2


def test_json_in_a_folder_with_other_files_is_skipped(fetch: Fetch, tree: Path) -> None:
    (tree / "a.json").write_text(json.dumps(item("one", data=asset("a.tif", "data"))))
    found = expanded(fetch, tree)
    assert sorted(names(found, tree)) == ["a.json", "a.tif", "b.tif", "notes.md", "sub/c.tif"]
    assert all(each.optional for each in found)
