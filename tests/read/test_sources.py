"""Sources that changed, vanished, moved out of reach or do not answer are found; files that failed are not asked."""

import os

import pytest

import periplus
from periplus.arrange import FileEntry, files_table
from periplus.fetch import Fetch
from periplus.model import Catalog
from periplus.policy import Policy
from periplus.read import check_sources
from periplus.table import memory_table
from periplus.testing.formats import tiff as tiffs
from periplus.testing.servers.http import RangeServer


@pytest.fixture
def sources(tmp_path):
    paths = [tmp_path / name for name in ("same", "grown", "touched", "gone")]
    for path in paths:
        path.write_bytes(b"x" * 100)
    fetch = Fetch()
    heads = [fetch.run(fetch.head(str(path))) for path in paths]
    with open(paths[1], "ab") as file:
        file.write(b"y")
    os.utime(paths[2], (1, 1))
    paths[3].unlink()
    return heads


def table_of(sources):
    files = files_table([FileEntry(source=source) for source in sources])
    return memory_table(Catalog(arrays={}), {}, files)


def test_each_kind_of_change_is_found_in_the_order_of_the_files(sources):
    steps = []
    report = check_sources(table_of(sources), Fetch(), progress=lambda done, total: steps.append((done, total)))
    assert [(finding.kind, os.path.basename(finding.url)) for finding in report.findings] == [
        ("stale", "grown"),
        ("stale", "touched"),
        ("missing", "gone"),
    ]
    assert not report.ok
    assert report.counts == {"ok": 1, "stale": 2, "missing": 1, "denied": 0, "unreachable": 0, "damaged": 0}
    assert steps == [(n, 4) for n in range(1, 5)]


def test_what_policy_forbids_is_denied_and_not_asked(sources, tmp_path):
    report = check_sources(table_of(sources[:1]), Fetch(policy=Policy.beside(str(tmp_path / "other" / "a.parquet"))))
    assert report.counts["denied"] == 1


def test_a_server_that_is_gone_is_unreachable():
    fetch = Fetch(retries=0)
    with fetch, RangeServer({"a": b"x" * 10}) as server:
        there = fetch.run(fetch.head(f"{server.url}/a"))
        assert check_sources(table_of([there]), fetch).ok
    assert check_sources(table_of([there]), fetch).counts["unreachable"] == 1
    fetch.close()


def test_an_index_can_be_asked_and_asks_only_for_what_it_could_read(tmp_path):
    (tmp_path / "a.tif").write_bytes(tiffs.case("geo-attributes").data)
    (tmp_path / "b.tif").write_bytes(b"II*\0" + bytes(8))
    index = periplus.index([tmp_path / "a.tif", tmp_path / "b.tif"])
    report = index.check()
    assert (report.ok, report.asked) == (True, 1)
    os.utime(tmp_path / "a.tif", (5, 5))
    assert index.check().counts["stale"] == 1
