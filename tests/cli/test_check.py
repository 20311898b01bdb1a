"""periplus check: what changed, vanished or is out of reach is found, and nothing else."""

import json
import os
import shutil

import pytest

from periplus.testing.tamper import change_column, tamper


def test_an_untouched_archive_is_ok(index, periplus):
    done = periplus("check", index)
    assert (done.code, done.out) == (0, "4 sources: 4 ok\n")


def test_changed_and_missing_sources_are_found(index, archive, periplus):
    (archive / "scene_20230101.tif").unlink()
    with open(archive / "scene_20230210.tif", "ab") as file:
        file.write(b"more")
    os.utime(archive / "scene_20230322.tif", (1, 1))
    done = periplus("check", index, "--json")
    said = json.loads(done.out)
    assert done.code == 1
    assert said["counts"] == {"ok": 1, "stale": 2, "missing": 1, "denied": 0, "unreachable": 0, "damaged": 0}
    assert [finding["kind"] for finding in said["findings"]] == ["missing", "stale", "stale"]
    shown = periplus("check", index)
    assert shown.code == 1
    assert "4 sources: 1 ok, 2 stale, 1 missing" in shown.out


def test_sources_elsewhere_are_denied_until_allowed(archive, periplus, tmp_path):
    elsewhere = tmp_path / "indexes"
    elsewhere.mkdir()
    periplus("index", f"{archive}/*.tif", "-o", elsewhere / "a.parquet")
    done = periplus("check", elsewhere / "a.parquet")
    assert done.code in (1, 2)
    assert "denied" in done.out + done.err
    done = periplus("check", elsewhere / "a.parquet", "--allow", f"{archive}/")
    assert (done.code, done.out) == (0, "4 sources: 4 ok\n")


def test_the_environment_may_allow(archive, periplus, tmp_path, monkeypatch):
    elsewhere = tmp_path / "indexes"
    elsewhere.mkdir()
    periplus("index", f"{archive}/*.tif", "-o", elsewhere / "a.parquet")
    monkeypatch.setenv("PERIPLUS_ALLOW", f"/somewhere/ {archive}/")
    assert periplus("check", elsewhere / "a.parquet").code == 0


def test_a_whole_archive_that_moved_is_still_ok(index, archive, periplus, tmp_path):
    moved = tmp_path / "moved"
    moved.mkdir()
    shutil.move(index, moved / index.name)
    shutil.move(archive, moved / "archive")
    assert periplus("check", moved / index.name).code == 0


@pytest.mark.parametrize("verb", ["info", "query", "check"])
def test_no_such_index(verb, periplus, tmp_path):
    done = periplus(verb, tmp_path / "absent.parquet")
    assert done.code == 2
    assert done.err.startswith("periplus: missing: ")


def test_an_index_that_is_whole_is_ok(index, archive, periplus):
    shutil.rmtree(archive)  # no source is accessed
    done = periplus("check", index, "--index")
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith(" rows: ok\n")
    said = json.loads(periplus("check", index, "--index", "--json").out)
    assert (said["ok"], said["problems"], said["more"]) == (True, [], 0)
    assert said["rows"] > 0


def test_an_index_that_contradicts_itself_is_found(index, periplus):
    tamper(index, rows=change_column("offset", lambda values: [1 << 40, *values[1:]]))
    done = periplus("check", index, "--index", "--json")
    said = json.loads(done.out)
    assert (done.code, said["ok"]) == (1, False)
    assert [problem["kind"] for problem in said["problems"]] == ["range"]
    shown = periplus("check", index, "--index")
    assert shown.code == 1
    assert shown.out.startswith("range: array ")
    assert shown.out.endswith("rows: 1 problem\n")


def test_an_index_that_cannot_be_opened_is_a_problem_and_none_is_an_error(index, periplus, tmp_path):
    tamper(index, document=lambda _: b"{")
    done = periplus("check", index, "--index")
    assert done.code == 1
    assert done.out.startswith("document: ")
    done = periplus("check", tmp_path / "absent.parquet", "--index")
    assert done.code == 2
    assert done.err.startswith("periplus: missing: ")
