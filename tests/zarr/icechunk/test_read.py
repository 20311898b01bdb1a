"""Icechunk repositories as indexes: virtual, copied and inline chunks, versions, what is refused, damaged files."""

import json
import os
import random
import struct
from contextlib import contextmanager, suppress

import icechunk
import imagecodecs
import numpy as np
import pytest
import zarr

import periplus
from periplus.errors import PeriplusError
from periplus.limits import Limits
from periplus.testing import mutants
from periplus.testing.formats import tiff as tiffs
from periplus.zarr.icechunk import files as icefiles

PATTERN = "{time:%Y%m%d}"
SMALL = Limits(memory_bytes=1 << 22)


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
        index = periplus.open(tmp_path / "b.icechunk", skip_unsupported=["v"])
        assert "v" not in index
        return
    index = periplus.open(tmp_path / "b.icechunk")
    np.testing.assert_array_equal(index["v"][...], values["v"])
    np.testing.assert_array_equal(index["deep/w"][...], values["deep/w"])
    assert (index["n"].shape, index["n"][...]) == ((), 7)
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
    with pytest.raises(ValueError, match="branch= and tag= each choose a snapshot"):
        periplus.open(where, branch="work", tag="v1")


def test_what_lies_elsewhere_is_denied_unless_allowed(made, tmp_path):
    target, _ = made
    import shutil

    shutil.copytree(target, tmp_path / "moved.icechunk")
    elsewhere = periplus.open(tmp_path / "moved.icechunk")
    assert elsewhere.select(time="2021-01-02").num_rows == 4
    with pytest.raises(periplus.DeniedError):
        elsewhere["0/data"][...]
    allowed = periplus.open(tmp_path / "moved.icechunk", allow=[str(target.parent)])
    assert allowed["0/data"][...].shape == (3, 2, 50, 60)


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


class Ground:
    """A repository whose files are damaged and restored, read by periplus and by icechunk."""

    def __init__(self, target):
        self.target = target
        tip = json.loads((target / "refs/branch.main/ref.json").read_text())["snapshot"]
        self.files = {path: path.read_bytes() for path in (target / "snapshots" / tip, *target.glob("manifests/*"))}
        self.snapshot = target / "snapshots" / tip

    @contextmanager
    def holding(self, path, data):
        """The file with other bytes; the snapshot declares their number, so that this is not what is noticed."""
        name, old = path.name, self.files[path]
        path.write_bytes(data)
        if path != self.snapshot:
            inner = unpacked(self.files[self.snapshot])
            number = sum(icefiles.LETTERS.index(letter) << 5 * at for at, letter in enumerate(reversed(name)))
            row = (number >> 4).to_bytes(12) + bytes(4) + struct.pack("<Q", len(old))
            assert inner.count(row) == 1
            changed = inner.replace(row, row[:-8] + struct.pack("<Q", len(data)))
            self.snapshot.write_bytes(packed(self.files[self.snapshot], changed))
        try:
            yield
        finally:
            for file in (path, self.snapshot):
                file.write_bytes(self.files[file])

    def ours(self):
        """Arrays by name as we read them, None for one that is an error; or None for all of it."""
        try:
            index = periplus.open(self.target, allow=[str(self.target.parent)], limits=SMALL)
        except PeriplusError:
            return None
        found = {}
        for name in index:
            with suppress(PeriplusError):
                found[name] = index[name][...]
        return found

    def theirs(self):
        """The same by icechunk and zarr; nothing where they raise."""

        def arrays():
            storage = icechunk.local_filesystem_storage(str(self.target))
            allowed = {f"file://{self.target.parent}/": None}
            repository = icechunk.Repository.open(storage, authorize_virtual_chunk_access=allowed)
            tree = zarr.open_group(repository.readonly_session("main").store, mode="r")
            return {name: item for name, item in tree.members(max_depth=None) if isinstance(item, zarr.Array)}

        found = {name: tried(lambda item=item: np.asarray(item[...])) for name, item in (tried(arrays) or {}).items()}
        return {name: values for name, values in found.items() if values is not None}


def tried(call):
    try:
        return call()
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - a panic of icechunk is not an Exception
        return None


def unpacked(data):
    return icefiles.payload(data, data[icefiles.HEADER - 2], SMALL)


def packed(like, inner):
    return like[: icefiles.HEADER] + imagecodecs.zstd_encode(inner)


def overwritten(data, rng):
    """A number of the data is zero, a landmark, or near what it was."""
    size = rng.choice((1, 2, 4, 4, 8))
    at = rng.randrange(len(data) // size) * size
    old = int.from_bytes(data[at : at + size], "little")
    near = (0, 1, old + 1, old - 1, old + 4, old - 4, old ^ 8, len(data), rng.choice(mutants.BOUNDARY_VALUES))
    return data[:at] + (rng.choice(near) % (1 << 8 * size)).to_bytes(size, "little") + data[at + size :]


def damaged(data, others, rng):
    """One of the ways in which a file can be wrong."""
    inner = unpacked(data)
    cut = rng.randrange(len(inner))
    return rng.choice(
        (
            lambda: data[: icefiles.HEADER] + bytes(len(data) - icefiles.HEADER),
            lambda: packed(data, bytes(len(inner))),
            lambda: packed(data, inner[:cut] + bytes(len(inner) - cut)),
            lambda: packed(data, inner[:cut]),
            lambda: rng.choice(others),
            lambda: next(mutants.byte_mutants(data, seed=cut, count=1)),
            *[lambda: packed(data, next(mutants.byte_mutants(inner, seed=cut, count=1)))] * 3,
            *[lambda: packed(data, overwritten(inner, rng))] * 5,
        )
    )()


@pytest.mark.filterwarnings("ignore::UserWarning")  # what is damaged may be any word of the metadata
@pytest.mark.parametrize("kind", ["virtual", "own"])
def test_a_damaged_file_is_an_error_or_reads_as_icechunk_reads_it(kind, made, tmp_path):
    if kind == "own":
        by_zarr(tmp_path / "b.icechunk")
    ground = Ground(made[0] if kind == "virtual" else tmp_path / "b.icechunk")
    sound = ground.theirs()
    np.testing.assert_equal({name: sound[name] for name in ground.ours()}, ground.ours())
    rng = random.Random(11)
    read = refused = tried = 0
    while tried < 60 or (tried < 1000 and (read < 2 or refused < 30)):  # ids are random, and so is what is damaged
        tried += 1
        path = rng.choice(sorted(ground.files))
        data = damaged(ground.files[path], sorted(ground.files.values()), rng)
        with ground.holding(path, data):
            mine = ground.ours()
            if mine is None:
                refused += 1
                continue
            wanted = {**sound, **ground.theirs()}  # what icechunk does not read is unharmed where we read it
            for name, values in mine.items():
                np.testing.assert_array_equal(values, wanted[name], strict=True)
                read += 1
    assert refused >= 30
    assert read >= 2


@pytest.mark.parametrize("kind", ["snapshots", "manifests"])
def test_a_payload_of_zeros_is_refused(kind, made):
    ground = Ground(made[0])
    for path in ground.files:
        if path.parent.name == kind:
            zeros = packed(ground.files[path], bytes(len(unpacked(ground.files[path]))))
            with ground.holding(path, zeros), pytest.raises(periplus.FormatError, match="flatbuffer"):
                periplus.open(ground.target, allow=[str(ground.target.parent)])


def test_names_are_spelt_as_icechunk_spells_them():
    identity = bytes([0x04, 0x1D, 0x30, 0x8F, 0x33, 0xC0, 0xAE, 0x07, 0xE1, 0x1F, 0x62, 0xCC])
    assert len(icefiles.spelled(identity)) == 20
    assert icefiles.spelled(bytes(12)) == "0" * 20
    assert icefiles.spelled(b"\xff" * 12) == "Z" * 19 + "G"


def test_a_source_replaced_by_an_older_file_of_the_same_size_is_stale(tmp_path):
    for name, value, when in (("a", 1, 1_600_000_000.25), ("b", 2, 1_500_000_000.0)):
        path = tmp_path / f"{name}.tif"
        path.write_bytes(tiffs.written(np.full((1, 32, 32), value, "u1")))
        os.utime(path, (when, when))
    periplus.index(tmp_path / "a.tif").write(tmp_path / "a.icechunk")
    assert periplus.open(tmp_path / "a.icechunk", allow=str(tmp_path))["0/data"][0, 0, 0] == 1
    os.replace(tmp_path / "b.tif", tmp_path / "a.tif")
    for folder in (tmp_path / "a.icechunk", without_files(tmp_path / "a.icechunk", exact=True)):
        with pytest.raises(periplus.StaleError):
            periplus.open(folder, allow=str(tmp_path))["0/data"][0, 0, 0]


def without_files(target, *, exact=False):
    """A copy of a repository with a commit that has no files table: by another writer, or by an earlier version."""
    import shutil

    copy = target.with_name(f"copy.{target.name}")
    shutil.copytree(target, copy)
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(copy)))
    session = repository.writable_session("main")
    zarr.open_group(session.store).attrs["note"] = "another writer"
    session.commit("another", metadata={icefiles.EXACT: True} if exact else None)
    return copy


def collection(folder):
    folder.mkdir()
    for month in (1, 2, 3):
        image = np.full((1, 32, 32), month, "u1")
        (folder / f"scene_2021{month:02}05.tif").write_bytes(tiffs.written(image))
    return periplus.index(f"{folder}/*.tif", pattern="scene_{time:%Y%m%d}.tif", arrange="collect")


def test_the_files_table_of_an_index_is_kept(tmp_path):
    index = collection(tmp_path / "in")
    written = index.write(tmp_path / "a.icechunk")
    assert written.report.files == 3
    for again in (written, periplus.open(tmp_path / "a.icechunk")):
        assert again.select(time="2021-02").num_rows == index.select(time="2021-02").num_rows > 0
        assert again.read(time="2021-02").values.max() == 2
        for name in ("path", "size", "etag", "last_modified", "datetime", "format", "status"):
            assert list(getattr(again.files, name)) == list(getattr(index.files, name)), name
        assert again.files.columns["group"].tolist() == index.files.columns["group"].tolist()
    assert again.write(tmp_path / "b.parquet").select(time="2021-02").num_rows == 1


def test_a_selection_by_time_is_refused_where_the_repository_has_no_times(tmp_path):
    collection(tmp_path / "in").write(tmp_path / "a.icechunk")
    other = periplus.open(without_files(tmp_path / "a.icechunk"))
    assert other.select().num_rows == 3
    with pytest.raises(periplus.MissingError, match="the index has no times"):
        other.select(time="2021-02")


def test_files_with_copied_chunks_follow_the_sources(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.tif").write_bytes(tiffs.written(tiffs.picture(name, "u2", (1, 64, 64)), compression="lzw"))
    index = periplus.index(f"{tmp_path}/*.tif", arrange="collect")
    again = index.write(tmp_path / "a.icechunk", codecs="standard")
    assert list(again.files.path[:2]) == list(index.files.path)
    assert len(again.files) > 2
    assert all(path.startswith(f"{tmp_path}/a.icechunk/chunks/") for path in again.files.path[2:])
    for name in ("a/0/data", "b/0/data"):
        np.testing.assert_array_equal(again[name][...], index[name][...])


@pytest.mark.parametrize("files_table", [True, False])
@pytest.mark.parametrize("change", ["missing", "stale"])
def test_other_sources_are_read_where_one_is_missing_or_has_changed(change, files_table, tmp_path):
    index = collection(tmp_path / "in")
    index.write(tmp_path / "a.icechunk")
    target = tmp_path / "a.icechunk" if files_table else without_files(tmp_path / "a.icechunk")
    bad = tmp_path / "in" / "scene_20210205.tif"
    if change == "missing":
        bad.unlink()
    else:
        later = bad.stat().st_mtime + 10
        os.utime(bad, (later, later))
    opened = periplus.open(target)
    assert opened.select().num_rows == 3
    assert opened["scene_20210105/0/data"][0, 0, 0] == 1
    with pytest.raises(periplus.MissingError if change == "missing" else periplus.StaleError):
        opened["scene_20210205/0/data"][...]
    assert {name: count for name, count in opened.check().counts.items() if count} == {"ok": 2, change: 1}
    assert not opened.check_index().problems


def test_references_that_an_append_kept_are_compared_with_the_source_they_were_made_of(tmp_path):
    def indexed(*months):
        for month in months:
            (tmp_path / f"2021{month:02}01.tif").write_bytes(tiffs.written(np.full((1, 32, 32), month, "u1")))
        return periplus.index(f"{tmp_path}/*.tif", pattern=PATTERN, arrange="stack")

    indexed(1, 2).write(tmp_path / "a.icechunk")
    later = os.stat(tmp_path / "20210101.tif").st_mtime + 10
    os.utime(tmp_path / "20210101.tif", (later, later))
    again = indexed(3).write(tmp_path / "a.icechunk", append=True)
    assert again["0/data"][1:, 0, 0, 0].tolist() == [2, 3]
    with pytest.raises(periplus.StaleError):
        again["0/data"][0]


@pytest.mark.parametrize("note", ["no base64!", "AAAA", 7, ["AAAA"], "A" * 400])
def test_a_damaged_files_table_is_refused(note, tmp_path):
    repository, _ = by_zarr(tmp_path / "b.icechunk")
    session = repository.writable_session("main")
    zarr.open_group(session.store).attrs["note"] = "changed"
    session.commit("two", metadata={icefiles.FILES: note})
    with pytest.raises(periplus.FormatError):
        periplus.open(tmp_path / "b.icechunk")
