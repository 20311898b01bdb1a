"""What validate compares by meaning, how severe a finding is, and when a store fails."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr
from zarr.storage import MemoryStore

import periplus
from periplus.conventions.identity import metadata
from periplus.testing.hierarchies import StoredArray, spatial, write_hierarchy
from periplus.validation.checks import understand_all
from periplus.validation.documents import of_keys
from periplus.validation.profiles import PROFILES
from periplus.validation.repair import repaired

from .conftest import declared, edited, make_pyramid

pytestmark = pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part")


def codes(report, *severities):
    return {one.code for one in report.findings if not severities or one.severity in severities}


def consolidated(path, change, key="g/v"):
    """Change the consolidated copy of a node."""
    edited(path, lambda document: change(document["consolidated_metadata"]["metadata"][key]))
    return path


# --- consolidated metadata ------------------------------------------------------------------------------------------


def store(path, **more):
    array = StoredArray(dims=("y", "x"), shape=(3, 4), attributes={**spatial(), "note": 0}, **more)
    return write_hierarchy(path, {"g/v": array, "g/n": StoredArray(dims=None, shape=(2,))}, consolidated=True)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda d: d.pop("storage_transformers"), "g/v"),
        (lambda d: d.update(dimension_names=None), "g/n"),
        (lambda d: d.update(dimension_names=[None]), "g/n"),
        (lambda d: d.update(fill_value=0.0), "g/v"),
        (lambda d: d.update(attributes={}), "g/n"),
        (lambda d: d["attributes"].update(note=0.0), "g/v"),
        (lambda d: d.update(data_type={"name": "int32"}), "g/v"),
        (lambda d: d.update(chunk_key_encoding={"name": "default"}), "g/v"),
        (lambda d: d["codecs"].__setitem__(0, {**d["codecs"][0], "configuration": {"endian": "little"}}), "g/v"),
    ],
)
def test_documents_that_differ_only_in_form_are_no_finding(change, key, tmp_path):
    path = consolidated(store(tmp_path / "s.zarr"), change, key)
    report = periplus.validate(path)
    assert codes(report, "error") == set()
    assert report.repairs == ()


@pytest.mark.parametrize("spelled", ["NaN", "0x7ff8000000000000", "0x7ff8000000000001"])
def test_one_nan_has_several_spellings(spelled, tmp_path):
    path = consolidated(
        store(tmp_path / "s.zarr", dtype="float64", fill=np.nan), lambda d: d.update(fill_value=spelled)
    )
    assert codes(periplus.validate(path), "error") == set()


def test_defaults_of_zarr_v2_are_no_difference(tmp_path):
    nodes = {"g/v": StoredArray(dims=("y", "x"), shape=(3, 4), dtype="float32", fill=0.0)}
    path = write_hierarchy(tmp_path / "s.zarr", nodes, zarr_format=2, consolidated=True)

    def change(document):
        array = document["metadata"]["g/v/.zarray"]
        array.update(filters=[], fill_value=0)
        array.pop("dimension_separator", None)
        document["metadata"].pop("g/.zattrs", None)

    edited(path, change, ".zmetadata")
    assert codes(periplus.validate(path), "error") == set()
    edited(path, lambda d: d["metadata"]["g/v/.zarray"].update(fill_value=1), ".zmetadata")
    assert codes(periplus.validate(path), "error") == {"store.consolidated-differs"}


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(shape=[3, 5]),
        lambda d: d.update(fill_value=1),
        lambda d: d.update(dimension_names=None),
        lambda d: d["attributes"].update(note=1),
        lambda d: d["attributes"].update(note=None),
        lambda d: d["attributes"].pop("note"),
        lambda d: d.update(codecs=[{"name": "bytes", "configuration": {"endian": "big"}}]),
        lambda d: d.update(chunk_key_encoding={"name": "default", "configuration": {"separator": "."}}),
    ],
)
def test_documents_of_another_meaning_differ(change, tmp_path):
    path = consolidated(store(tmp_path / "s.zarr"), change)
    assert codes(periplus.validate(path), "error") == {"store.consolidated-differs"}
    assert periplus.validate(path, fix=True).worst != "error"


@pytest.mark.parametrize("before", [False, True])
def test_metadata_are_not_consolidated_without_a_corrupt_node(before, tmp_path):
    path = make_pyramid(tmp_path / "s.zarr", consolidate=before)
    edited(path / "2", lambda document: document["attributes"].update(note="newer"))
    (path / "1" / "data" / "zarr.json").write_bytes(b"{not JSON")
    report = periplus.validate(path, fix=True)
    assert {one.path for one in report.findings if one.code == "store.json"} == {"/1/data"}
    assert not codes(report) & {"store.consolidated-ghost", "store.consolidated-missing", "store.consolidated-differs"}
    held = json.loads((path / "zarr.json").read_text()).get("consolidated_metadata")
    assert (held is not None) == before
    if before:  # what is consolidated stays the only copy that can be read
        assert held["metadata"]["1/data"]["node_type"] == "array"
        assert held["metadata"]["2"]["attributes"] == {"note": "newer"}
    else:
        assert "store.json" in next(one.hint for one in report.findings if one.code == "store.unconsolidated")


def test_an_open_store_with_an_unreadable_array_is_validated():
    memory = write_hierarchy(MemoryStore(), {"g/v": StoredArray(dims=("y", "x"), shape=(2, 2), attributes=spatial())})
    zarr.create_array(memory, name="bad", shape=(2,), dtype="u1")
    document = json.loads(memory._store_dict["bad/zarr.json"].to_bytes())
    changed = json.dumps({**document, "data_type": "none"}).encode()
    memory._store_dict["bad/zarr.json"] = type(memory._store_dict["bad/zarr.json"]).from_bytes(changed)
    for what in (memory, zarr.open_group(memory, mode="r")):
        report = periplus.validate(what)
        assert [(one.code, one.path) for one in report.findings if one.severity == "error"] == [
            ("node.unreadable", "/bad")
        ]


@pytest.mark.parametrize("where", ["", "1"])
@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"node_type": 5}, "store.json"),
        ({"zarr_format": "3"}, "store.json"),
        ({"attributes": []}, "node.unreadable"),
        ({"unknown": 1}, "node.unreadable"),
    ],
)
def test_a_group_that_readers_cannot_open_is_an_error(change, code, where, tmp_path):
    path = make_pyramid(tmp_path / "s.zarr")
    edited(path / where, lambda document: document.update(change))
    with pytest.raises((TypeError, ValueError, FileNotFoundError)):
        zarr.open_group(path, path=where, mode="r", use_consolidated=False)
    found = [(one.code, one.path) for one in periplus.validate(path).findings if one.severity == "error"]
    assert (code, f"/{where}") in found


def test_the_work_grows_with_the_number_of_nodes():
    def calls(groups):
        nodes = {
            f"g{n}/zarr.json": group for n in range(groups) for group in [{"node_type": "group", "zarr_format": 3}]
        }
        box = {**spatial(), "spatial:bbox": [500005, 4999975, 500035, 4999995]}  # of pixel centres
        codecs = [{"name": "bytes", "configuration": {"endian": "little"}}]
        grid = {"name": "regular", "configuration": {"chunk_shape": [3, 4]}}
        array = {"zarr_format": 3, "node_type": "array", "shape": [3, 4], "data_type": "uint16", "fill_value": 0}
        array |= {"chunk_grid": grid, "chunk_key_encoding": "default", "codecs": codecs, "dimension_names": ["y", "x"]}
        nodes |= {f"g{n}/v/zarr.json": {**array, "attributes": {**box, "n": n}} for n in range(groups)}
        hierarchy = of_keys({"zarr.json": {"node_type": "group", "zarr_format": 3}, **nodes})
        count = 0

        def profile(_frame, event, _argument):
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(profile)
        try:
            understood = understand_all(hierarchy)
            _, repairs = repaired(understood)
        finally:
            sys.setprofile(None)
        assert len(repairs) >= groups
        return count

    calls(1)  # what is computed once for all
    assert calls(240) < 4.3 * calls(60)


# --- forms of a CRS -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["EPSG:32633", "+proj=utm +zone=33 +datum=WGS84", "urn:ogc:def:crs:EPSG::32633", '{"type": "x"}']
)
def test_what_is_not_wkt_in_wkt2_is_a_finding(text, pyramid):
    edited(pyramid, lambda document: document["attributes"].update({"proj:wkt2": text}))
    report = periplus.validate(pyramid)
    assert "proj.wkt2-form" in codes(report, "error")
    assert "proj.wkt2-form" in codes(periplus.validate(pyramid, profile="gdal"), "warning")


# --- samples of values ----------------------------------------------------------------------------------------------


def resampled(path, how, method, shape=(64, 96), *, level=False):
    """A pyramid of three levels by a function of blocks of 2 by 2."""
    make_pyramid(path)
    root = zarr.open_group(path, mode="a")
    values = np.random.default_rng(5).normal(50, 40, shape).astype("f4")
    for n in range(3):
        del root[f"{n}/data"]
        root[str(n)].create_array("data", data=values, chunks=(16, 16), dimension_names=("y", "x"))
        height, width = (size // 2 * 2 for size in values.shape)
        cut = values[:height, :width]
        values = how(cut.reshape(height // 2, 2, width // 2, 2), axis=(1, 3)).astype("f4")

    def change(document):
        pyramid = document["attributes"]["multiscales"]
        for one in pyramid["layout"][1:] if level else [pyramid]:
            one["resampling_method"] = method
        for n, item in enumerate(pyramid["layout"]):
            item["spatial:shape"] = list(root[f"{n}/data"].shape)

    edited(path, change)
    return path


def rms(values, axis):
    return np.sqrt((values.astype("f8") ** 2).mean(axis=axis))


@pytest.mark.parametrize(
    ("how", "method", "level"),
    [(np.sum, "sum", False), (np.sum, "Sum", True), (rms, "RMS", False), (np.max, "max", True), (np.std, "std", False)],
)
def test_levels_are_compared_by_their_resampling_method(how, method, level, tmp_path):
    report = periplus.validate(resampled(tmp_path / "s.zarr", how, method, level=level), deep=True)
    assert not codes(report) & {"deep.disagree", "deep.hole", "deep.unreadable"}
    assert ("deep.method" in codes(report, "info")) == (method == "std")


@pytest.mark.parametrize(("how", "method"), [(np.mean, "sum"), (np.sum, "average"), (np.sum, "rms")])
def test_levels_by_another_method_than_declared_are_found(how, method, tmp_path):
    report = periplus.validate(resampled(tmp_path / "s.zarr", how, method), deep=True)
    assert "deep.disagree" in codes(report, "error", "warning")


def test_sums_of_odd_sizes_are_no_false_error(tmp_path):
    path = resampled(tmp_path / "s.zarr", np.sum, "sum", (63, 97))
    assert "deep.disagree" not in codes(periplus.validate(path, deep=True))


# --- severities -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fail_on", "unconsolidated", "codes_only"), [("error", 0, 0), ("warning", 1, 1), ("info", 1, 1)]
)
def test_a_store_fails_from_the_severity_on_that_is_asked_for(fail_on, unconsolidated, codes_only, tmp_path, capsys):
    from periplus.cli.app import run

    bare = make_pyramid(tmp_path / "bare.zarr", consolidate=False)
    assert run(["validate", str(bare), "--fail-on", fail_on]) == unconsolidated
    report = periplus.validate(bare, fail_on=fail_on)
    assert report.ok == (unconsolidated == 0)
    assert (report.to_dict()["ok"], report.to_dict()["fail_on"]) == (report.ok, fail_on)
    good = make_pyramid(tmp_path / "good.zarr")
    assert run(["validate", str(good), "--fail-on", fail_on]) == 0
    edited(good, lambda document: document["attributes"].pop("proj:wkt2"))
    assert run(["validate", str(good), "--fail-on", fail_on, "--profile", "gdal"]) == (fail_on == "info")
    edited(good, lambda document: document["attributes"]["multiscales"]["layout"][1].update(asset="9"))
    assert run(["validate", str(good), "--fail-on", fail_on]) == 2
    capsys.readouterr()


def test_other_severities_are_refused(pyramid):
    with pytest.raises(ValueError, match="fail_on= is one of error, warning, info"):
        periplus.validate(pyramid, fail_on="never")


def drafts():
    """Attributes as the published examples of the conventions have them, each with older forms that stay valid."""
    old = "https://raw.githubusercontent.com/zarr-experimental/geo-proj/refs/tags/v1/schema.json"
    named = [{**metadata("proj"), "name": "proj:", "schema_url": old}, {**metadata("spatial"), "name": "spatial:"}]
    place = {"spatial:dimensions": ["y", "x"], "spatial:transform": [60.0, 0.0, 440720.0, 0.0, -60.0, 3750120.0]}
    cs = {"crs": [{"type": "planar", "axes": {"y": {"abbreviation": "Y"}, "x": {"abbreviation": "X"}}}]}
    by_url = [{key: value for key, value in metadata("cs").items() if key != "uuid"}]
    version = {"uuid": "77c308c7-4db2-4774-8b2d-aa37e9997db6", "name": "CF", "version": "1.11"}
    old_keys = {"proj:transform": place["spatial:transform"], "proj:bbox": [440720.0, 3749940.0, 440960.0, 3750120.0]}
    return {
        "code": {"zarr_conventions": named, "proj:code": "EPSG:26711", **place},
        "URL": {"zarr_conventions": by_url, "cs": cs},
        "version": {"zarr_conventions": [version], "units": "K", "standard_name": "sea_surface_temperature"},
        "old keys": {"zarr_conventions": named[:1], "proj:code": "EPSG:26711", **old_keys},
        "unit": {"zarr_conventions": declared("uom"), "uom": {"ucum": {"unit": "m"}}},
    }


@pytest.mark.parametrize("form", drafts())
def test_valid_published_examples_do_not_fail(form, tmp_path, capsys):
    from periplus.cli.app import run

    nodes = {"v": StoredArray(dims=("y", "x"), shape=(3, 4), attributes=drafts()[form])}
    path = write_hierarchy(tmp_path / "s.zarr", nodes)
    assert run(["validate", str(path)]) == 0, capsys.readouterr().out
    capsys.readouterr()


def test_the_page_lists_the_severities_that_profiles_change():
    page = (Path(__file__).parent.parent.parent / "docs/validate.md").read_text()
    section = page.partition("## Severities")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([a-z, `]+) \| (error|warning|info) \| (`.+`) \|$", section, re.MULTILINE)
    found = {
        (profile, code): severity
        for profiles, severity, listed in rows
        for profile in re.findall("`([a-z]+)`", profiles)
        for code in re.findall("`([^`]+)`", listed)
    }
    assert found == {(name, code): to for name, one in PROFILES.items() for code, to in one.severities.items()}
