"""Checksums: recorded while indexing, kept by every form and every change of an index, compared by every reader."""

import asyncio
import os
import shutil
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.abc.store import RangeByteRequest
from zarr.core.buffer import default_buffer_prototype

import periplus
from periplus.fetch.checksum import crc32c
from periplus.read import checksums
from periplus.testing.scenes import tile
from periplus.testing.servers.http import RangeServer

FORMS = ("i.parquet", "i", "i.duckdb")
COUNTS = "select count(*) as rows, count(crc32c) as sums from chunks"


def counts(index):
    return tuple(index.sql(COUNTS).to_pylist()[0].values())


@pytest.fixture
def archive(tmp_path):
    """Three tiles of one grid, two of which overlap, with a time in each name."""
    folder = tmp_path / "archive"
    folder.mkdir()
    for number, corner in enumerate(((0, 0), (64, 0), (96, 32))):
        tile(folder / f"t_2021010{number + 1}.tif", *corner, compress="none")
    return folder


def damage(path, at):
    """Flip a bit, without a trace in size or time."""
    status = path.stat()
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def first_offset(index, file):
    rows = index.select().to_pylist()
    return next(row["offset"] for row in rows if row["path"].endswith(file))


def test_the_checksum_is_that_of_the_stored_bytes(archive):
    assert crc32c(b"123456789") == 0xE3069283
    index = periplus.index(archive, checksums=True)
    for row in index.select().to_pylist():
        data = Path(row["path"]).read_bytes()[row["offset"] : row["offset"] + row["length"]]
        assert row["crc32c"] == google_crc32c.value(data)


@pytest.mark.parametrize("arrange", ["collect", "stack", "mosaic"])
@pytest.mark.parametrize("form", FORMS)
def test_damage_is_noticed_by_every_reader(arrange, form, archive, tmp_path):
    if arrange == "stack":
        for path in archive.iterdir():
            tile(path, 0, 0, compress="none")
    options = {"duplicates": "first"} if arrange == "mosaic" else {}
    target = tmp_path / form
    index = periplus.index(archive, to=target, arrange=arrange, pattern="t_{time:%Y%m%d}", checksums=True, **options)
    rows, sums = counts(index)
    assert rows == sums > 0
    report = index.check(deep=True)
    assert (report.ok, report.ranges, report.unchecked) == (True, rows, 0)
    before = {name: index.arrays[name][...] for name in index.arrays}
    victim = archive / "t_20210102.tif"
    at = first_offset(index, victim.name)
    index.close()
    damage(victim, at + 1)
    with periplus.open(target, trust=True, allow=str(archive)) as index:
        assert index.check().ok  # size and time are as before
        report = index.check(deep=True)
        assert [(one.kind, one.url) for one in report.findings] == [("damaged", str(victim))]
        assert f"@ {at}" in report.findings[0].error
        assert report.counts["damaged"] == 1
        group = zarr.open_group(index.store(), mode="r")
        damaged = 0
        for name, values in before.items():
            rows = index.select(array=name).to_pylist()
            readers = (lambda name=name: index.arrays[name][...], lambda name=name: group[name][...])
            if any((row["path"], row["offset"]) == (str(victim), at) for row in rows):
                damaged += 1
                for read in readers:
                    with pytest.raises(periplus.DecodeError, match=f"checksum.*{victim.name} @ {at}"):
                        read()
            else:
                for read in readers:
                    np.testing.assert_array_equal(read(), values)
        assert damaged == 1


@pytest.mark.parametrize("form", FORMS)
def test_checksums_stay_when_an_index_grows_or_changes_its_form(form, archive, tmp_path):
    target = tmp_path / form
    periplus.index(archive / "t_20210101.tif", to=target, arrange="mosaic", duplicates="last", checksums=True).close()
    with periplus.index(archive / "t_20210103.tif", to=target, append=True) as index:
        assert len(set(counts(index))) == 1
    with periplus.index(archive / "t_20210102.tif", to=target, append=True) as index:  # all are arranged again
        rows, sums = counts(index)
        assert rows == sums
        assert index.check(deep=True).ok
        for other in {"o.parquet", "o", "o.duckdb"} - {form}:
            with index.write(tmp_path / other) as written:
                assert counts(written) == (rows, sums)
    with periplus.index(archive, to=target, arrange="mosaic", duplicates="last", checksums=True) as index:
        assert index.summary.reused == 3


def test_files_without_checksums_are_read_again_when_they_are_asked_for(archive, tmp_path):
    target = tmp_path / "i.parquet"
    with periplus.index(archive, to=target) as index:
        assert counts(index)[1] == 0
        with pytest.raises(ValueError, match="no checksums"):
            index.check(deep=True)
    with pytest.raises(periplus.ConflictError, match="without checksums"):
        periplus.index(archive, to=target, append=True, checksums=True)
    with periplus.index(archive, to=target, checksums=True) as index:
        assert index.summary.reused == 0
        assert len(set(counts(index))) == 1
    with periplus.index(archive, to=target) as index:  # not asked for: what is there stays
        assert index.summary.reused == 3
        assert len(set(counts(index))) == 1


def test_a_file_that_ends_early_is_recorded_as_failed(archive, tmp_path):
    path = archive / "t_20210102.tif"
    offset = first_offset(periplus.index(archive), path.name)
    path.write_bytes(path.read_bytes()[: offset + 10])
    index = periplus.index(archive, checksums=True)
    assert index.summary.failed == 1
    assert index.summary.errors[0][0] == str(path)


def test_remote_files_and_readers(archive):
    with RangeServer(archive) as server:
        index = periplus.index([f"{server.url}/t_2021010{n}.tif" for n in (1, 2, 3)], checksums=True)
        assert len(set(counts(index))) == 1
        assert index.check(deep=True).ok
        damage(archive / "t_20210101.tif", first_offset(index, "t_20210101.tif") + 5)
        with pytest.raises(periplus.DecodeError, match="checksum"):
            xr.open_datatree(index, engine="periplus")["t_20210101"].load()
        assert [one.kind for one in index.check(deep=True).findings] == ["damaged"]


def test_a_check_that_is_interrupted_goes_on(archive, tmp_path, monkeypatch):
    monkeypatch.setattr(checksums, "BATCH_ROWS", 1)
    index = periplus.index(archive, checksums=True)
    damage(archive / "t_20210101.tif", first_offset(index, "t_20210101.tif"))
    state = tmp_path / "state.json"

    def stop(done, total):
        if done == total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        index.check(deep=True, resume=state, progress=stop)
    read, compute = [], checksums.range_checksums
    monkeypatch.setattr(checksums, "range_checksums", lambda *given: read.append(1) or compute(*given))
    report = index.check(deep=True, resume=state)
    assert len(read) == index.table.rows - index.table.rows // 2
    assert (report.ranges, [one.kind for one in report.findings]) == (index.table.rows, ["damaged"])
    assert not state.exists()


def test_the_state_behind_a_link_is_removed(archive, tmp_path):
    index = periplus.index(archive, checksums=True)
    (tmp_path / "link").symlink_to(tmp_path / "state")
    assert index.check(deep=True, resume=tmp_path / "link").ok
    assert not (tmp_path / "state").exists()
    damage(archive / "t_20210101.tif", first_offset(index, "t_20210101.tif"))
    assert not index.check(deep=True, resume=tmp_path / "link").ok
    with pytest.raises(ValueError, match="local file"):
        index.check(deep=True, resume="http://127.0.0.1:1/x")


def test_the_state_of_another_check_is_refused(archive, tmp_path):
    state = tmp_path / "state.json"
    index = periplus.index(archive, checksums=True)
    for text in ('{"index": "of another"}', "[]", "{"):
        state.write_text(text)
        with pytest.raises(periplus.FormatError, match="state of a check"):
            index.check(deep=True, resume=state)
        assert state.read_text() == text
    with pytest.raises(ValueError, match="without deep"):
        index.check(resume=state)


def test_the_state_of_a_check_replaces_neither_the_index_nor_a_source(archive, tmp_path):
    for target in (tmp_path / "i.parquet", tmp_path / "dataset"):
        index = periplus.index(archive, to=target, checksums=True)
        (archive / "t_20210102.tif").rename(tmp_path / "moved.tif")
        (archive / "t_20210102.tif").symlink_to(tmp_path / "moved.tif")
        found = [path for path in (target, *target.rglob("*")) if path.is_file()]
        for path in [*found, *archive.iterdir(), tmp_path / "moved.tif", target / "state.json"]:
            before = path.read_bytes() if path.is_file() else None
            with pytest.raises(periplus.PeriplusError, match=r"the target is|not a folder"):
                index.check(deep=True, resume=path)
            assert (path.read_bytes() if path.is_file() else None) == before
        (tmp_path / "moved.tif").rename(archive / "t_20210102.tif")


def test_no_state_is_left_of_a_check_without_checksums(archive, tmp_path):
    with pytest.raises(ValueError, match="no checksums"):
        periplus.index(archive).check(deep=True, resume=tmp_path / "state.json")
    assert not (tmp_path / "state.json").exists()


def test_sources_that_cannot_be_read_do_not_end_a_check(archive):
    index = periplus.index(archive, checksums=True)
    (archive / "t_20210102.tif").unlink()
    shutil.copy(archive / "t_20210101.tif", archive / "t_20210103.tif")
    report = index.check(deep=True)
    assert {os.path.basename(one.url): one.kind for one in report.findings} == {
        "t_20210102.tif": "missing",
        "t_20210103.tif": "stale",
    }
    assert report.ranges > 0


def test_a_check_of_which_all_sources_are_lost_lists_them(archive):
    index = periplus.index(archive, checksums=True)
    for path in archive.iterdir():
        path.unlink()
    assert [one.kind for one in index.check(deep=True).findings] == ["missing"] * 3


def test_a_store_compares_whole_ranges_only(archive):
    index = periplus.index(archive / "t_20210101.tif", checksums=True)
    store = index.store(codecs="all")
    damage(archive / "t_20210101.tif", first_offset(index, "t_20210101.tif"))
    key = "0/data/c/0/0/0"
    part = asyncio.run(store.get(key, default_buffer_prototype(), RangeByteRequest(4, 8)))
    assert len(part) == 4
    with pytest.raises(periplus.DecodeError, match="checksum"):
        asyncio.run(store.get(key, default_buffer_prototype()))
