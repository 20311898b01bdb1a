"""Icechunk repositories as indexes: virtual, copied and inline chunks, versions, what is refused, damaged files."""

import json

import icechunk
import numpy as np
import pytest
import zarr

import periplus
from periplus.errors import PeriplusError
from periplus.limits import Limits
from periplus.testing import mutate, tiffs
from periplus.zarr import icefiles

PATTERN = "{time:%Y%m%d}"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A repository with virtual chunks, and the index it was made of."""
    folder = tmp_path_factory.mktemp("ice")
    for day in (1, 2, 3):
        image = tiffs.picture(f"day {day}", "u2", (2, 50, 60))
        (folder / f"202101{day:02}.tif").write_bytes(tiffs.written(image, compression="zstd"))
    index = periplus.index(f"{folder}/*.tif", pattern=PATTERN, arrange="stack")
    index.write(folder / "a.icechunk")
    return folder / "a.icechunk", index


def by_zarr(folder, **options):
    """A repository written by zarr itself: chunks of its own, small ones inline."""
    storage = icechunk.local_filesystem_storage(str(folder))
    repository = icechunk.Repository.create(storage)
    session = repository.writable_session("main")
    root = zarr.create_group(session.store, attributes={"title": "made by zarr"})
    rng = np.random.default_rng(3)
    values = {
        "v": rng.integers(0, 1000, (70, 90)).astype("i4"),
        "deep/w": rng.normal(size=(5, 40)).astype("f4"),
        "x": np.arange(90) * 0.5,
        "n": np.array(7, "i2"),
    }
    root.create_array("v", data=values["v"], chunks=(32, 32), dimension_names=("y", "x"), **options)
    root.create_array("deep/w", data=values["deep/w"], chunks=(5, 16), dimension_names=("a", "b"))
    root.create_array("x", data=values["x"], dimension_names=("x",))
    root.create_array("n", data=values["n"])
    session.commit("one")
    return repository, values


def test_virtual_chunks_read_as_from_the_index_they_were_made_of(made):
    target, index = made
    again = periplus.open(target, allow=[str(target.parent)])
    np.testing.assert_array_equal(again["0/data"][...], index["0/data"][...])
    assert again["0/data"].dims == ("time", "bands", "y", "x")
    labels = again.table.catalog.coordinates["time"].values
    np.testing.assert_array_equal(labels, index.table.catalog.coordinates["time"].values)
    assert sorted(again.files.path) == sorted(index.files.path)
    assert again.sql("select count(*) as n from chunks").column("n").to_pylist() == [3 * 4]


@pytest.mark.parametrize("options", [{}, {"compressors": None}, {"shards": (64, 64)}])
def test_chunks_of_its_own_read_as_zarr_reads_them(options, tmp_path):
    _, values = by_zarr(tmp_path / "b.icechunk", **options)
    if "shards" in options:
        with pytest.raises(periplus.FormatError, match=r"v/zarr\.json"):
            periplus.open(tmp_path / "b.icechunk")
        index = periplus.open(tmp_path / "b.icechunk", leave_out=["v"])
        assert "v" not in index
        return
    index = periplus.open(tmp_path / "b.icechunk")
    np.testing.assert_array_equal(index["v"][...], values["v"])
    np.testing.assert_array_equal(index["deep/w"][...], values["deep/w"])
    np.testing.assert_array_equal(index["n"][...], [7])
    np.testing.assert_array_equal(index.table.catalog.coordinates["x"].values, values["x"])


def test_branches_tags_and_snapshots_are_versions(tmp_path):
    repository, values = by_zarr(tmp_path / "b.icechunk")
    first = repository.lookup_branch("main")
    repository.create_tag("v1", first)
    session = repository.writable_session("main")
    zarr.open_group(session.store)["v"][0, 0] = -5
    second = session.commit("two")
    repository.create_branch("work", second)
    where = tmp_path / "b.icechunk"
    assert periplus.open(where)["v"][0, 0] == -5
    assert periplus.open(where, branch="work")["v"][0, 0] == -5
    assert periplus.open(where, tag="v1")["v"][0, 0] == values["v"][0, 0]
    assert periplus.open(where, snapshot=first)["v"][0, 0] == values["v"][0, 0]
    with pytest.raises(periplus.MissingError, match="branch 'none'"):
        periplus.open(where, branch="none")


def test_what_lies_elsewhere_is_denied_unless_allowed(made, tmp_path):
    target, _ = made
    import shutil

    shutil.copytree(target, tmp_path / "moved.icechunk")
    with pytest.raises(periplus.DeniedError):
        periplus.open(tmp_path / "moved.icechunk")
    assert periplus.open(tmp_path / "moved.icechunk", allow=[str(target.parent)])["0/data"].shape == (3, 2, 50, 60)


def test_format_two_and_no_repository_are_told_apart(tmp_path):
    (tmp_path / "c.icechunk").mkdir()
    with pytest.raises(periplus.MissingError):
        periplus.open(tmp_path / "c.icechunk")
    (tmp_path / "c.icechunk" / "repo").write_bytes(b"ICE")
    with pytest.raises(periplus.FormatError, match="format 2"):
        periplus.open(tmp_path / "c.icechunk")


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"snapshot": 7}', b'{"snapshot": "../../etc"}', b"\xff"])
def test_a_branch_that_points_at_nothing_is_refused(text, made, tmp_path):
    import shutil

    shutil.copytree(made[0], tmp_path / "d.icechunk")
    (tmp_path / "d.icechunk/refs/branch.main/ref.json").write_bytes(text)
    with pytest.raises(periplus.FormatError):
        periplus.open(tmp_path / "d.icechunk")


def test_damaged_files_are_errors_of_ours_and_nothing_else(made):
    target, _ = made
    limits = Limits(memory_bytes=1 << 22)
    name = json.loads((target / "refs/branch.main/ref.json").read_text())["snapshot"]
    snapshot = (target / "snapshots" / name).read_bytes()
    inner = icefiles.payload(snapshot, icefiles.SNAPSHOT, limits)
    plain = snapshot[: icefiles.HEADER - 1] + b"\x00"
    nodes = icefiles.read_snapshot(snapshot, limits)
    assert {node.path for node in nodes} >= {"", "0", "0/data", "0/time"}
    refused = 0
    for data in (*mutate.mutants(inner, seed=1, count=150), inner[:100], b""):
        try:
            icefiles.read_snapshot(plain + data, limits)
        except PeriplusError:
            refused += 1
    assert refused > 50
    array = next(node for node in nodes if node.path == "0/data")
    manifest = (target / "manifests" / icefiles.spelled(array.manifests[0])).read_bytes()
    inner = icefiles.payload(manifest, icefiles.MANIFEST, limits)
    plain = manifest[: icefiles.HEADER - 1] + b"\x00"
    for data in (*mutate.mutants(inner, seed=2, count=150), inner[:60], b""):
        try:
            icefiles.read_manifest(plain + data, {array.id: 4}.get, limits)
        except PeriplusError:
            refused += 1
    for data in mutate.mutants(snapshot, seed=3, count=100):
        try:
            icefiles.read_snapshot(data, limits)
        except PeriplusError:
            refused += 1
    assert refused > 150


def test_names_are_spelt_as_icechunk_spells_them():
    identity = bytes([0x04, 0x1D, 0x30, 0x8F, 0x33, 0xC0, 0xAE, 0x07, 0xE1, 0x1F, 0x62, 0xCC])
    assert len(icefiles.spelled(identity)) == 20
    assert icefiles.spelled(bytes(12)) == "0" * 20
    assert icefiles.spelled(b"\xff" * 12) == "Z" * 19 + "G"
