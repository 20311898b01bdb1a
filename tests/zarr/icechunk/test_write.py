"""An index committed to Icechunk: pixels through stock Icechunk and zarr, checksums, appending, and what is refused."""

import os
import struct

import icechunk
import numpy as np
import pytest
import rasterio
import zarr

import periplus
from periplus.fetch import Fetch
from periplus.testing.formats import jpeg2000 as j2ks
from periplus.testing.formats import tiff as tiffs
from periplus.zarr.icechunk import write as icewrite
from periplus.zarr.icechunk.locations import located, prefixes_of, url_of
from periplus.zarr.icechunk.repository import container_of, storage_of

PATTERN = "{time:%Y%m%d}"
pytestmark = [
    pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification"),
]


def stored(target, prefixes=()):
    storage = icechunk.local_filesystem_storage(str(target))
    return icechunk.Repository.open(storage, authorize_virtual_chunk_access=dict.fromkeys(prefixes))


def session(target, prefixes=(), **which):
    return stored(target, prefixes).readonly_session(**(which or {"branch": "main"}))


def group(target, prefixes=(), **which):
    return zarr.open_group(session(target, prefixes, **which).store, mode="r")


def written(target, index, **options):
    return index.write(target, **options).report.commit


def days(folder, *numbers):
    folder.mkdir(exist_ok=True)
    for day in numbers:
        image = np.full((2, 50, 60), day, "u2")
        (folder / f"202101{day:02}.tif").write_bytes(tiffs.written(image, compression="zstd"))
    return periplus.index(f"{folder}/*.tif", pattern=PATTERN, arrange="stack")


@pytest.mark.parametrize("compress", ["zstd", "deflate", "none"])
def test_a_pyramid_reads_in_stock_icechunk_as_gdal_reads_it(compress, tmp_path):
    path, target = tmp_path / "a.tif", tmp_path / "a.icechunk"
    image = tiffs.picture("icechunk", "u2", (3, 200, 260))
    options = {"crs": "EPSG:32633", "transform": rasterio.Affine(10, 0, 5e5, 0, -10, 5e6)}
    data = tiffs.gdal_written(
        image, overviews=(2, 4), tiled=True, blockxsize=64, blockysize=64, compress=compress, **options
    )
    path.write_bytes(data)
    report = written(target, periplus.index(path))
    assert report.native == 0
    assert report.virtual == 20 + 6 + 2
    assert report.unchecked == 0
    assert report.prefixes == (f"file://{tmp_path}/",)
    tree = group(target, report.prefixes)
    for name, wanted in tiffs.seen_by_gdal(data, levels=3).items():
        np.testing.assert_array_equal(tree[name][...], wanted)
    assert tree.attrs["multiscales"]["layout"][1]["derived_from"] == "0"
    np.testing.assert_allclose(tree["0/x"][:2], [500005, 500015])


def test_virtual_chunks_need_the_readers_consent(tmp_path):
    report = written(tmp_path / "a.icechunk", days(tmp_path / "in", 1, 2))
    with pytest.raises(icechunk.IcechunkError):
        group(tmp_path / "a.icechunk")["0/data"][...]
    assert report.prefixes == (f"file://{tmp_path}/in/",)
    assert group(tmp_path / "a.icechunk", report.prefixes)["0/data"].shape == (2, 2, 50, 60)


def test_a_source_that_changed_is_noticed_by_icechunk_and_by_us(tmp_path):
    report = written(tmp_path / "a.icechunk", days(tmp_path / "in", 1, 2))
    path = tmp_path / "in" / "20210101.tif"
    later = path.stat().st_mtime + 10
    os.utime(path, (later, later))
    with pytest.raises(icechunk.IcechunkError):
        group(tmp_path / "a.icechunk", report.prefixes)["0/data"][...]
    again = periplus.open(tmp_path / "a.icechunk", allow=[str(tmp_path)])
    with pytest.raises(periplus.StaleError):
        again["0/data"][...]


@pytest.mark.parametrize("size", [None, 0, 300])
def test_a_source_that_is_gone_or_cut_off_is_an_error_in_icechunk_and_with_us(size, tmp_path):
    report = written(tmp_path / "a.icechunk", days(tmp_path / "in", 1))
    path = tmp_path / "in" / "20210101.tif"
    before = path.stat()
    path.unlink() if size is None else os.truncate(path, size)
    if size is not None:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(icechunk.IcechunkError):
        group(tmp_path / "a.icechunk", report.prefixes)["0/data"][0, 0, -1, -1]
    with pytest.raises(periplus.PeriplusError):
        periplus.open(tmp_path / "a.icechunk", allow=[str(tmp_path)])["0/data"][0, 0, -1, -1]


def test_chunks_in_several_pieces_are_copied_and_the_report_says_so(tmp_path):
    path, target = tmp_path / "a.j2k", tmp_path / "a.icechunk"
    path.write_bytes(j2ks.interleaved(j2ks.layout("parts-rpcl")))
    index = periplus.index(path)
    report = written(target, index, codecs="all")
    assert report.native > 0
    assert "0/data" in report.copied
    assert "several byte ranges" in str(report)
    with rasterio.open(path) as wanted:
        np.testing.assert_array_equal(group(target, report.prefixes)["0/data"][...], wanted.read())


def test_codecs_that_readers_lack_are_undone_before(tmp_path):
    path, target = tmp_path / "a.tif", tmp_path / "a.icechunk"
    image = tiffs.picture("lzw", "u2", (1, 100, 120))
    path.write_bytes(tiffs.written(image, compression="lzw", predictor=2))
    report = written(target, periplus.index(path), codecs="standard")
    assert report.virtual == 0
    assert list(report.copied) == ["0/data"]
    np.testing.assert_array_equal(group(target)["0/data"][...], image)


def test_appending_writes_what_is_new_and_keeps_the_history(tmp_path):
    target = tmp_path / "a.icechunk"
    first = written(target, days(tmp_path / "in", 1, 2))
    index = days(tmp_path / "in", 3)
    second = written(target, index, append=True)
    assert first.virtual == 2 * 4
    assert second.virtual == 1 * 4
    tree = group(target, second.prefixes)
    np.testing.assert_array_equal(tree["0/data"][:, 0, 0, 0], [1, 2, 3])
    assert tree["0/time"].shape == (3,)
    assert group(target, second.prefixes, snapshot_id=first.snapshot)["0/data"].shape[0] == 2


def test_writing_again_without_append_replaces_all_in_one_commit(tmp_path):
    target = tmp_path / "a.icechunk"
    first = written(target, days(tmp_path / "in", 1, 2))
    other = tmp_path / "other.tif"
    other.write_bytes(tiffs.written(np.ones((1, 30, 30), "u1"), compression="zstd"))
    second = written(target, periplus.index(other))
    tree = group(target, second.prefixes)
    assert tree["0/data"].shape == (1, 30, 30)
    assert "time" not in tree["0"]
    assert group(target, first.prefixes, snapshot_id=first.snapshot)["0/data"].shape == (2, 2, 50, 60)


def test_a_new_branch_begins_at_the_head_of_main(tmp_path):
    target, both = tmp_path / "a.icechunk", days(tmp_path / "in", 1, 2)
    first = written(target, both)
    on_dev = written(target, days(tmp_path / "in", 3), branch="dev", append=True)
    assert on_dev.virtual == first.virtual // 2  # only what is new
    assert periplus.open(target, branch="dev")["0/data"][:, 0, 0, 0].tolist() == [1, 2, 3]
    assert periplus.open(target)["0/data"].shape[0] == 2
    parents = [one.id for one in stored(target).ancestry(branch="dev")]
    assert parents[1] == first.snapshot


def test_a_new_repository_may_begin_with_any_branch(tmp_path):
    target = tmp_path / "a.icechunk"
    assert written(target, days(tmp_path / "in", 1), branch="dev").branch == "dev"
    assert periplus.open(target, branch="dev")["0/data"][0, 0, 0, 0] == 1
    with pytest.raises(periplus.MissingError, match="nothing was written to this branch"):
        periplus.open(target)


@pytest.mark.parametrize("exists", [True, False])
def test_a_write_that_fails_leaves_no_branch(exists, tmp_path, monkeypatch):
    index = days(tmp_path / "in", 1)
    if exists:
        written(tmp_path / "a.icechunk", index)

    def failing(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("periplus.zarr.icechunk.write._listed", failing)
    with pytest.raises(KeyboardInterrupt):
        index.write(tmp_path / "a.icechunk", branch="dev")
    if exists:
        assert stored(tmp_path / "a.icechunk").list_branches() == {"main"}
    else:
        with pytest.raises(periplus.MissingError):
            periplus.open(tmp_path / "a.icechunk", branch="dev")
        monkeypatch.undo()
        assert written(tmp_path / "a.icechunk", index, branch="dev").virtual > 0


@pytest.mark.parametrize(
    ("branch", "error"), [("", ValueError), ("a/b", ValueError), ("é", ValueError), (3, TypeError)]
)
def test_a_name_that_no_branch_can_have_is_refused(branch, error, tmp_path):
    with pytest.raises(error, match="name of a branch"):
        days(tmp_path / "in", 1).write(tmp_path / "a.icechunk", branch=branch)
    assert not (tmp_path / "a.icechunk").exists()


def test_what_is_no_continuation_is_not_appended(tmp_path):
    target = tmp_path / "a.icechunk"
    before = written(target, days(tmp_path / "in", 2, 3)).snapshot
    with pytest.raises(periplus.ConflictError, match="time"):
        written(target, days(tmp_path / "in", 1), append=True)
    other = tmp_path / "other.tif"
    other.write_bytes(tiffs.written(np.ones((1, 30, 30), "u1"), compression="zstd"))
    with pytest.raises(periplus.ConflictError):
        written(target, periplus.index(other), append=True)
    assert session(target).snapshot_id == before


def test_a_write_that_fails_leaves_no_repository(tmp_path):
    path, target = tmp_path / "a.j2k", tmp_path / "a.icechunk"
    path.write_bytes(j2ks.interleaved(j2ks.layout("parts-rpcl")))
    index = periplus.index(path)
    path.unlink()
    with pytest.raises(periplus.MissingError):
        written(target, index, codecs="all")
    assert not [found for found in target.rglob("*") if found.is_file()]


def test_a_write_that_fails_leaves_what_was_there(tmp_path):
    path, target = tmp_path / "a.j2k", tmp_path / "a.icechunk"
    before = written(target, days(tmp_path / "in", 1, 2)).snapshot
    path.write_bytes(j2ks.interleaved(j2ks.layout("parts-rpcl")))
    index = periplus.index(path)
    path.unlink()
    with pytest.raises(periplus.MissingError):
        written(target, index, codecs="all")
    assert session(target).snapshot_id == before


def test_the_slower_of_two_who_make_a_repository_leaves_what_the_other_committed(tmp_path, monkeypatch):
    target, index = tmp_path / "a.icechunk", days(tmp_path / "in", 1, 2)
    real = icewrite._Writer.write

    def slow(writer, old):
        real(writer, old)
        monkeypatch.setattr(icewrite._Writer, "write", real)
        others.append(written(target, days(tmp_path / "in", 1, 2)).snapshot)

    others = []
    monkeypatch.setattr(icewrite._Writer, "write", slow)
    with pytest.raises(periplus.ConflictError, match="another writer committed first"):
        written(target, index)
    assert [session(target).snapshot_id] == others
    assert periplus.open(target, allow=str(tmp_path))["0/data"].shape == (2, 2, 50, 60)


def test_no_repository_is_made_where_none_can_be(tmp_path):
    index = days(tmp_path / "in", 1)
    with pytest.raises(periplus.FormatError, match="folder or in a bucket"):
        written("https://example.com/a.icechunk", index)


def test_web_addresses_that_icechunk_does_not_take_are_told(server, tmp_path):
    values = tiffs.picture("port", "u2", (1, 40, 50))
    server.files["a.tif"] = tiffs.written(values, compression="zstd")
    server.files["b.j2k"] = j2ks.interleaved(j2ks.layout("parts-rpcl"))
    with pytest.raises(periplus.FormatError, match="the port of a URL"):
        written(tmp_path / "a.icechunk", periplus.index(f"{server.url}/a.tif"))
    assert not [found for found in (tmp_path / "a.icechunk").rglob("*") if found.is_file()]
    # What is copied refers to nothing.
    report = written(tmp_path / "b.icechunk", periplus.index(f"{server.url}/b.j2k"), codecs="standard")
    assert report.virtual == 0
    np.testing.assert_array_equal(group(tmp_path / "b.icechunk")["0/data"][...], j2ks.picture())


@pytest.mark.s3
def test_repository_and_sources_in_a_bucket(s3, tmp_path):
    options = s3.storage_options
    with Fetch(storage_options=options) as fetch:
        for day in (1, 2):
            data = tiffs.written(np.full((1, 40, 50), day, "u2"), compression="zstd")
            fetch.run(fetch.write(f"{s3.url}/ice/in/202101{day:02}.tif", data))
    index = periplus.index(f"{s3.url}/ice/in/*.tif", pattern=PATTERN, arrange="stack", storage_options=options)
    target = f"{s3.url}/ice/a.icechunk"
    report = written(target, index)
    assert report.prefixes == (f"{s3.url}/ice/in/",)
    assert report.unchecked == 0
    storage = icechunk.s3_storage(
        bucket=s3.bucket, prefix="ice/a.icechunk", endpoint_url=s3.endpoint, allow_http=True, region="us-east-1",
        access_key_id=s3.access_key, secret_access_key=s3.secret_key, force_path_style=True,
    )  # fmt: skip
    keys = icechunk.s3_credentials(access_key_id=s3.access_key, secret_access_key=s3.secret_key)
    allowed = icechunk.containers_credentials({report.prefixes[0]: keys})
    repository = icechunk.Repository.open(storage, authorize_virtual_chunk_access=allowed)
    tree = zarr.open_group(repository.readonly_session("main").store, mode="r")
    np.testing.assert_array_equal(tree["0/data"][:, 0, 0, 0], [1, 2])
    again = periplus.open(target, storage_options=options)
    np.testing.assert_array_equal(again["0/data"][...], tree["0/data"][...])
    assert again.files.etag[0], "read with If-Match"
    with Fetch(storage_options=options) as fetch:
        fetch.run(fetch.write(f"{s3.url}/ice/in/20210101.tif", tiffs.written(np.zeros((1, 40, 50), "u2"))))
    with pytest.raises(periplus.StaleError):
        periplus.open(target, storage_options=options)["0/data"][...]


@pytest.mark.parametrize(
    ("prefix", "options"),
    [
        ("file:///data/", {}),
        ("https://example.com/scenes/", {}),
        ("s3://bucket/scenes/", {"anon": True, "region": "eu-central-1"}),
        ("gs://bucket/scenes/", {"anon": True}),
        ("az://container/scenes/", {"account_name": "somebody", "account_key": "a2V5"}),
    ],
)
def test_containers_and_storage_of_every_kind_of_place(prefix, options):

    with Fetch(storage_options=options) as fetch:
        container, _ = container_of(prefix, fetch)
        assert container.url_prefix == prefix
        if not prefix.startswith("https"):
            assert storage_of(f"{prefix}a.icechunk".removeprefix("file://"), fetch) is not None
    assert prefixes_of([f"{prefix}a/b.tif", f"{prefix}a/c/d.tif", f"{prefix}e.tif"]) == [prefix]
    assert located(f"{prefix}e.tif") == f"{prefix}e.tif"


@pytest.mark.parametrize("name", ["a#b.tif", "a?b.tif", "a%41.tif", "a%2Fb.tif", "a b.tif", "ä.tif", "a+[1].tif"])
def test_any_file_name_is_read_from_that_file(name, tmp_path):
    for other in ("a", "aA.tif", "a b"):  # what is read where a part of the name is dropped or decoded twice
        (tmp_path / other).write_bytes(tiffs.written(np.full((1, 40, 50), 8, "u2"), compression="zstd"))
        os.utime(tmp_path / other, (1e9, 1e9))
    folder = tmp_path / f"in {name}"
    for path in (tmp_path / name, folder / name):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(tiffs.written(np.full((1, 40, 50), 7, "u2"), compression="zstd"))
        target = tmp_path / f"{path.parent.name}.icechunk"
        report = written(target, periplus.index([path]))
        assert report.prefixes == (f"file://{path.parent}/",)
        assert set(group(target, report.prefixes)["0/data"][...].flat) == {7}
        assert set(periplus.open(target, allow=[str(tmp_path)])["0/data"][...].flat) == {7}


@pytest.mark.parametrize(
    "url", ["s3://bucket/a b/c#d?e%20f.tif", "gs://bucket/ä.tif", "https://example.com/a%20b/c.tif"]
)
def test_a_location_names_the_url_it_was_made_of(url):
    assert located(url).isascii()
    assert not set("#? ") & set(located(url))
    assert url_of(located(url)) == url


@pytest.mark.parametrize("path", ["a?id=7", "a//b.tif", "a%2Fb.tif"])
def test_a_web_address_of_which_icechunk_drops_a_part_is_refused(path):
    with pytest.raises(periplus.FormatError, match="Icechunk ignores"):
        located(f"https://example.com/{path}")
    with pytest.raises(periplus.FormatError, match="query or a fragment"):
        url_of("https://example.com/a?id=7")


def test_a_codestream_that_is_too_large_does_not_keep_others_from_being_committed(tmp_path):
    values = j2ks.picture(1, "u1", 64, 64)
    (tmp_path / "a.j2k").write_bytes(j2ks.made(values))
    (tmp_path / "b.j2k").write_bytes(j2ks.giant(1 << 15))
    index = periplus.index([tmp_path / "a.j2k", tmp_path / "b.j2k"])
    report = written(tmp_path / "r.icechunk", index)
    assert report.native == 0
    tree = group(tmp_path / "r.icechunk", report.prefixes)
    assert np.array_equal(tree["a/0/data"][...], values)
    with pytest.raises(periplus.LimitError):
        tree["b/0/data"][0, 0, 0]


def test_an_array_that_cannot_be_copied_is_left_out_where_that_is_asked_for(tmp_path):
    image = np.arange(64, dtype="u1").reshape(1, 8, 8)
    data = tiffs.written(image, compression="zlib", predictor=True)
    (tmp_path / "a.tif").write_bytes(data)
    entry = data.index(struct.pack("<HHI", 317, 3, 1))
    (tmp_path / "b.tif").write_bytes(data[: entry + 8] + b"\xff" + data[entry + 9 :])  # a predictor nobody knows
    index = periplus.index([tmp_path / "a.tif", tmp_path / "b.tif"])
    with pytest.raises(periplus.FormatError, match=r"predictor 255 is not known.*skip_unsupported"):
        index.write(tmp_path / "r.icechunk")
    report = written(tmp_path / "r.icechunk", index, skip_unsupported=True)
    assert set(report.skipped) == {"b/0/data"}
    tree = group(tmp_path / "r.icechunk", report.prefixes)
    assert np.array_equal(tree["a/0/data"][...], image)
    assert "data" not in tree["b/0"]
