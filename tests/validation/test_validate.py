"""validate: what is right passes, what is wrong is found with its code, path and severity; only metadata are read."""

import json
import shutil

import numpy as np
import pytest
import zarr

import periplus
from periplus.conventions.identity import CONVENTIONS
from periplus.testing.formats import tiff as tiffs
from periplus.testing.servers.http import RangeServer

from .conftest import declared, edited, make_pyramid

pytestmark = [
    pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part"),
    pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification"),
]


def codes(report, *severities):
    return {one.code for one in report.findings if not severities or one.severity in severities}


def test_a_right_pyramid_has_no_finding(pyramid):
    for profile in ("spec", "gdal"):
        report = periplus.validate(pyramid, profile=profile, deep=True)
        assert report.findings == ()
        assert report.worst is None
        assert (report.groups, report.arrays) == (4, 3)
        assert report.conventions == {"multiscales": 1, "proj": 1, "spatial": 1}
        assert report.repairs == ()


def test_zarr_v2_is_checked_too(tmp_path):
    path = make_pyramid(tmp_path / "two.zarr", zarr_format=2)
    report = periplus.validate(path, deep=True)
    assert codes(report, "error", "warning") == set()
    assert report.arrays == 3


def test_no_chunk_is_read(pyramid):
    for file in pyramid.rglob("c/*/*"):
        file.unlink()
    assert periplus.validate(pyramid).findings == ()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda a: a["multiscales"]["layout"][1].update(asset="7"), "multiscales.asset-missing"),
        (lambda a: a["multiscales"]["layout"][1].update({"spatial:shape": [5, 5]}), "multiscales.shape-mismatch"),
        (lambda a: a["multiscales"]["layout"][1].update(derived_from="2"), "multiscales.cycle"),
        (lambda a: a["multiscales"]["layout"][1].update(asset="../x"), "multiscales.asset-path"),
        (lambda a: a["zarr_conventions"][1].pop("uuid"), "identity.no-uuid"),
        (lambda a: a.update({"proj:code": "EPSG:4326"}), "proj.conflict"),
        (lambda a: a.update({"spatial:bbox": [1, 2, 3]}), "spatial.bbox"),
    ],
)
def test_what_is_wrong_is_found_with_its_code(change, code, pyramid):
    edited(pyramid, lambda document: change(document["attributes"]))
    report = periplus.validate(pyramid)
    assert code in codes(report, "error", "warning")
    finding = next(one for one in report.findings if one.code == code)
    assert finding.path == "/"
    assert finding.attribute


def test_a_store_in_which_nothing_was_checked_is_not_called_right(tmp_path):
    root = zarr.create_group(tmp_path / "plain.zarr")
    root.create_array("a", data=np.zeros((4, 4)))
    report = periplus.validate(tmp_path / "plain.zarr")
    assert "store.nothing" in codes(report, "warning")
    assert report.conventions == {}


def test_what_is_consolidated_must_be_what_is_stored(pyramid):
    edited(pyramid / "1", lambda document: document["attributes"].update(note="newer"))
    shutil.rmtree(pyramid / "2")
    zarr.create_group(pyramid / "3")
    found = codes(periplus.validate(pyramid), "error")
    assert {"store.consolidated-differs", "store.consolidated-ghost", "store.consolidated-missing"} <= found


def test_metadata_that_are_not_json_are_a_finding_and_the_rest_is_read(pyramid):
    (pyramid / "1" / "data" / "zarr.json").write_bytes(b"{not json")
    (pyramid / "2" / "zarr.json").write_bytes(b"[1, 2]")
    report = periplus.validate(pyramid)
    assert [one.path for one in report.findings if one.code == "store.json"] == ["/1/data", "/2"]
    assert report.groups == 3


def test_no_store_is_an_error_of_ours(tmp_path):
    with pytest.raises(periplus.MissingError):
        periplus.validate(tmp_path)
    with pytest.raises(ValueError, match="profile"):
        periplus.validate(tmp_path, profile="none")


def test_references_out_of_the_store_are_findings_and_no_loops(tmp_path):
    root = zarr.create_group(tmp_path / "refs.zarr")
    axis = {"abbreviation": "X", "coordinates": [{"direction": "east", "unit": "m", "values": {}}]}
    axis["coordinates"][0]["values"] = {"external": {"ref": {"node": "../../../../etc"}}}
    root.create_array("a", data=np.zeros(4), dimension_names=("x",))
    root["a"].attrs.update(
        {"zarr_conventions": declared("cs", "ref"), "cs": {"crs": [{"type": "planar", "axes": {"x": axis}}]}}
    )
    report = periplus.validate(tmp_path / "refs.zarr")
    assert codes(report, "error") == {"ref.path"}


# --- where stores lie -----------------------------------------------------------------------------------------------


def test_an_index_is_a_store_too(tmp_path):
    image = tiffs.picture("valid", "u2", (2, 200, 260))
    place = {"crs": "EPSG:32633", "transform": (10, 0, 5e5, 0, -10, 5e6)}
    from affine import Affine

    place["transform"] = Affine(*place["transform"])
    data = tiffs.gdal_written(
        image, overviews=(2, 4), tiled=True, blockxsize=64, blockysize=64, compress="zstd", **place
    )
    (tmp_path / "a.tif").write_bytes(data)
    index = periplus.index(tmp_path / "a.tif", to=tmp_path / "a.parquet")
    for what in (index, tmp_path / "a.parquet", index.store()):
        for profile in ("spec", "gdal"):
            report = periplus.validate(what, profile=profile, deep=True)
            assert codes(report, "error", "warning") == set(), (what, profile)
        assert report.conventions["multiscales"] == 1
    assert codes(periplus.validate(index, profile="eopf"), "error") == set()


def test_a_store_on_a_web_server_is_read_from_what_is_consolidated(pyramid):
    with RangeServer(pyramid) as server:
        report = periplus.validate(server.url)
        assert report.findings == ()
        assert report.arrays == 3
        asked = {request.path for request in server.log}
        assert asked <= {"/zarr.json", "/.zmetadata"}
        assert periplus.validate(server.url, deep=True).findings == ()
        zarr.open_group(pyramid)["2/data"][...] = 5000
        assert codes(periplus.validate(server.url, deep=True), "error") == {"deep.disagree"}
    bare = make_pyramid(pyramid.parent / "bare.zarr", consolidate=False)
    with RangeServer(bare) as server, pytest.raises(periplus.FormatError, match="cannot be listed"):
        periplus.validate(server.url)


@pytest.mark.s3
def test_a_store_in_a_bucket_is_listed_folder_by_folder(s3, pyramid):
    from periplus.fetch import Fetch

    with Fetch(storage_options=s3.storage_options) as fetch:
        for file in pyramid.rglob("*"):
            if file.is_file():
                fetch.run(fetch.write(f"{s3.url}/valid/{file.relative_to(pyramid)}", file.read_bytes()))
    report = periplus.validate(f"{s3.url}/valid", storage_options=s3.storage_options)
    assert report.findings == ()
    assert report.arrays == 3


# --- profiles -------------------------------------------------------------------------------------------------------


def test_gdal_knows_conventions_by_uuid_and_overviews_by_name_rank_and_type(pyramid):
    def change(document):
        attributes = document["attributes"]
        attributes["zarr_conventions"][1].pop("uuid")
        attributes["spatial:registration"] = "pixel"
        attributes["multiscales"]["layout"][1]["transform"] = {"scale": [1.0, 2.0, 2.0], "translation": [0.0, 0.5]}

    edited(pyramid, change)
    root = zarr.open_group(pyramid)
    del root["2/data"]
    root["2"].create_array("data", data=np.zeros((16, 24), "u1"), dimension_names=("y", "x"))
    root["1/data"].attrs["note"] = "kept"
    report = periplus.validate(pyramid, profile="gdal")
    assert {"gdal.uuid", "gdal.overview", "gdal.scale-rank"} <= codes(report, "error")
    assert "gdal.translation" in codes(report, "warning")


def test_gdal_lacks_codecs_that_are_no_part_of_zarr(pyramid):
    def change(document):
        document["codecs"].append({"name": "https://example.com/codec"})

    edited(pyramid / "0" / "data", change)
    assert "gdal.codec" in codes(periplus.validate(pyramid, profile="gdal"), "error")


def test_eopf_wants_footprint_crs_layout_variables_and_labels(pyramid):
    def change(document):
        attributes = document["attributes"]
        for key in [key for key in attributes if key.startswith("proj:")] + ["spatial:bbox"]:
            del attributes[key]
        del attributes["multiscales"]["layout"][2]["spatial:transform"]

    edited(pyramid, change)
    zarr.open_group(pyramid)["0"].create_array("more", data=np.zeros((64, 96)), dimension_names=("y", "x"))
    report = periplus.validate(pyramid, profile="eopf")
    assert {"eopf.root-bbox", "eopf.root-crs", "eopf.layout", "eopf.variables"} <= codes(report, "error")
    assert "eopf.coordinates" in codes(report, "warning")


def test_embeddings_have_vectors_and_scales(tmp_path, pyramid):
    assert "embeddings.none" in codes(periplus.validate(pyramid, profile="embeddings"), "error")
    root = zarr.create_group(tmp_path / "t.zarr")
    said = {"tessera:dataset_version": "v1", "tessera:year": 2024}
    root.attrs.update({"zarr_conventions": declared("tessera"), **said})
    zone = root.create_group("utm33")
    more = {"tessera:utm_zone": 33, "tessera:n_bands": 8, "tessera:n_tiles": 1, "tessera:model_version": "1"}
    zone.attrs.update({"zarr_conventions": declared("tessera"), **said, **more})
    zone.create_array("embeddings", data=np.zeros((4, 5, 8), "i1"), dimension_names=("northing", "easting", "band"))
    zone.create_array("scales", data=np.ones((4, 5), "f4"), dimension_names=("northing", "easting"))
    report = periplus.validate(tmp_path / "t.zarr", profile="embeddings")
    assert codes(report, "error") == set()
    del zone["scales"]
    assert "tessera.array" in codes(periplus.validate(tmp_path / "t.zarr", profile="embeddings"), "error")
    zone.create_array("scales", data=np.ones((4, 4), "f4"), dimension_names=("northing", "x"))
    zone.attrs["tessera:n_bands"] = 7
    found = periplus.validate(tmp_path / "t.zarr", profile="embeddings")
    assert sum(one.code == "tessera.array" for one in found.findings) == 2


# --- the deep look --------------------------------------------------------------------------------------------------


def test_levels_that_do_not_agree_are_found(pyramid):
    root = zarr.open_group(pyramid)
    root["2/data"][...] = 5000
    report = periplus.validate(pyramid, deep=True)
    assert [(one.code, one.severity, one.path) for one in report.findings] == [("deep.disagree", "error", "/2/data")]
    assert periplus.validate(pyramid).findings == ()


def test_chunks_that_are_missing_from_a_coarse_level_are_found(tmp_path):
    path = make_pyramid(tmp_path / "holes.zarr")
    for level in range(3):
        edited(path / str(level) / "data", lambda document: document["attributes"].update(_FillValue=0.0))
    zarr.consolidate_metadata(path)
    assert codes(periplus.validate(path, deep=True), "error") == set()
    for file in (path / "1" / "data" / "c").rglob("*"):
        if file.is_file() and file.name != "0":
            file.unlink()
    report = periplus.validate(path, deep=True)
    assert "deep.hole" in codes(report, "error")


def test_values_that_cannot_be_read_are_a_finding(pyramid):
    for file in (pyramid / "1" / "data" / "c").rglob("*"):
        if file.is_file():
            file.write_bytes(b"damaged")
    assert "deep.unreadable" in codes(periplus.validate(pyramid, deep=True), "error")


# --- repairs --------------------------------------------------------------------------------------------------------


def broken(path):
    """Old URLs and names, a missing uuid, a box from pixel centres, nothing consolidated."""
    make_pyramid(path, consolidate=False)

    def change(document):
        attributes = document["attributes"]
        spatial, proj = attributes["zarr_conventions"][1:]
        spatial.pop("uuid")
        proj["name"] = "proj:"
        proj["schema_url"] = "https://raw.githubusercontent.com/zarr-experimental/geo-proj/refs/tags/v1/schema.json"
        attributes["spatial:bbox"] = [5e5 + 5, 5e6 - 635, 5e5 + 955, 5e6 - 5]
        attributes["zarr_conventions"].append({"uuid": "00000000-0000-0000-0000-000000000000", "name": "mine"})
        attributes["mine"] = {"kept": [1, 2.5, None]}

    edited(path, change)
    return path


def test_a_dry_run_writes_nothing(tmp_path):
    path = broken(tmp_path / "broken.zarr")
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    report = periplus.validate(path, fix=True, dry_run=True)
    assert {one.code for one in report.repairs} >= {
        "identity.old-url",
        "spatial.bbox-half-pixel",
        "store.unconsolidated",
    }
    assert not report.fixed
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


def test_what_is_safe_is_repaired_and_nothing_else_is_touched(tmp_path):
    path = broken(tmp_path / "broken.zarr")
    chunks = {file: file.read_bytes() for file in path.rglob("c/*/*")}
    arrays = {file: file.read_bytes() for file in path.rglob("data/zarr.json")}
    report = periplus.validate(path, fix=True, deep=True)
    assert report.fixed
    assert codes(report, "error", "warning") == set()
    root = zarr.open_group(path, mode="r")
    assert root.metadata.consolidated_metadata is not None
    attributes = dict(root.attrs)
    assert attributes["spatial:bbox"] == [5e5, 5e6 - 640, 5e5 + 960, 5e6]
    assert attributes["mine"] == {"kept": [1, 2.5, None]}
    assert [entry.get("uuid") for entry in attributes["zarr_conventions"]] == [
        CONVENTIONS["multiscales"].uuid, CONVENTIONS["spatial"].uuid, CONVENTIONS["proj"].uuid,
        "00000000-0000-0000-0000-000000000000",
    ]  # fmt: skip
    assert {file: file.read_bytes() for file in path.rglob("c/*/*")} == chunks
    assert {file: file.read_bytes() for file in path.rglob("data/zarr.json")} == arrays
    assert periplus.validate(path, fix=True).repairs == ()


def test_the_root_alone_is_repaired_where_all_else_is_right(pyramid):
    def change(document):
        document["attributes"]["spatial:bbox"] = [5e5 + 5, 5e6 - 635, 5e5 + 955, 5e6 - 5]

    edited(pyramid, change)
    before = {file: file.read_bytes() for file in pyramid.glob("*/**/*") if file.is_file()}
    report = periplus.validate(pyramid, fix=True)
    assert [one.code for one in report.repairs] == ["spatial.bbox-half-pixel"]
    assert report.findings == ()
    assert zarr.open_group(pyramid, mode="r").attrs["spatial:bbox"] == [5e5, 5e6 - 640, 5e5 + 960, 5e6]
    assert {file: file.read_bytes() for file in pyramid.glob("*/**/*") if file.is_file()} == before


def test_metadata_of_zarr_v2_are_consolidated_where_version_two_keeps_them(tmp_path):
    path = make_pyramid(tmp_path / "two.zarr", consolidate=False, zarr_format=2)
    report = periplus.validate(path, fix=True)
    assert [one.attribute for one in report.repairs] == [".zmetadata"]
    assert report.findings == ()
    held = json.loads((path / ".zmetadata").read_text())
    assert held["metadata"]["1/data/.zattrs"] == {"_ARRAY_DIMENSIONS": ["y", "x"]}
    assert zarr.open_group(path, mode="r").metadata.consolidated_metadata is not None


def test_what_is_not_a_store_at_a_url_is_not_repaired(tmp_path):
    path = broken(tmp_path / "broken.zarr")
    with pytest.raises(ValueError, match="fix= repairs only"):
        periplus.validate(zarr.open_group(path, mode="r"), fix=True)


# --- the command ----------------------------------------------------------------------------------------------------


def run(*arguments, capsys):
    from periplus.cli.app import run as main

    code = main(["validate", *map(str, arguments)])
    return code, capsys.readouterr()


def test_the_exit_code_follows_the_most_severe_finding(tmp_path, pyramid, capsys):
    code, said = run(pyramid, capsys=capsys)
    assert code == 0
    assert "no errors or warnings by profile spec" in said.out
    bare = make_pyramid(tmp_path / "bare.zarr", consolidate=False)
    code, said = run(bare, "--fail-on", "warning", capsys=capsys)
    assert code == 1
    assert "store.unconsolidated" in said.out
    assert "can be repaired (--fix)" in said.out
    edited(bare, lambda document: document["attributes"]["multiscales"]["layout"][1].update(asset="9"))
    code, said = run(bare, "--json", capsys=capsys)
    assert code == 2
    report = json.loads(said.out)
    assert report["worst"] == "error"
    assert any(one["code"] == "multiscales.asset-missing" and one["path"] == "/" for one in report["findings"])
    code, said = run(broken(tmp_path / "b.zarr"), "--fix", capsys=capsys)
    assert code == 0
    assert "repaired: / spatial:bbox" in said.out
    code, said = run(tmp_path / "none.zarr", capsys=capsys)
    assert code == 2
    assert said.err.startswith("periplus: missing")
