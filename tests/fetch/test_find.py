import os
import secrets

import pytest

from periplus.errors import FetchError, FormatError, MissingError
from periplus.fetch import Fetch
from periplus.fetch.glob import Glob

NAMES = [
    "2021/01/a.tif", "2021/01/b.tif", "2021/01/b.txt", "2021/02/a.tif", "2021/a.tif", "2021/deep/er/still/c.tif",
    "2022/01/a.tif", "2021-old/a.tif", "top.tif", "2021/01/[x].tif",
]  # fmt: skip


@pytest.fixture(params=["local", "memory", pytest.param("s3", marks=pytest.mark.s3)])
def archive(request, tmp_path):
    """(list the names under the root that match a pattern, root)."""
    if request.param == "local":
        fetch, root = Fetch(), str(tmp_path)
    elif request.param == "memory":
        fetch, root = Fetch(), f"memory://{secrets.token_hex(6)}"
    else:
        s3 = request.getfixturevalue("s3")
        fetch, root = Fetch(storage_options=s3.storage_options), f"{s3.url}/{secrets.token_hex(6)}"

    async def fill():
        for name in NAMES:
            await fetch.write(f"{root}/{name}", name.encode())

    def find(pattern):
        async def collect():
            return [source async for source in fetch.find(f"{root}/{pattern}")]

        sources = fetch.run(collect())
        for source in sources:
            assert source.size == len(source.url.removeprefix(root + "/").encode())
            assert source.last_modified is not None
        return [source.url.removeprefix(root + "/") for source in sources]

    fetch.run(fill())
    yield find
    fetch.close()


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("top.tif", ["top.tif"]),
        ("2021/01/", ["2021/01/[x].tif", "2021/01/a.tif", "2021/01/b.tif", "2021/01/b.txt"]),
        ("2021/*.tif", ["2021/a.tif"]),
        ("2021/*/a.tif", ["2021/01/a.tif", "2021/02/a.tif"]),
        ("20??/01/a.tif", ["2021/01/a.tif", "2022/01/a.tif"]),
        ("2021/0[12]/a.tif", ["2021/01/a.tif", "2021/02/a.tif"]),
        ("2021/0[!1]/a.tif", ["2021/02/a.tif"]),
        ("2021/**/a.tif", ["2021/01/a.tif", "2021/02/a.tif", "2021/a.tif"]),
        ("2021/**/c.*", ["2021/deep/er/still/c.tif"]),
        ("**/still/**", ["2021/deep/er/still/c.tif"]),
        ("2021*/a.tif", ["2021-old/a.tif", "2021/a.tif"]),
        ("2021/01/[[]x].tif", ["2021/01/[x].tif"]),
        ("2021/*.nc", []),
        ("2021/01/*/*", []),
    ],
)
def test_globs_and_prefixes_find_what_they_say(archive, pattern, expected):
    assert archive(pattern) == expected


def test_everything_is_found_once(archive):
    assert sorted(archive("**")) == sorted(NAMES)
    assert sorted(archive("**/*.tif")) == sorted(name for name in NAMES if name.endswith(".tif"))


def test_a_literal_name_that_is_absent_is_missing(archive):
    with pytest.raises(MissingError):
        archive("2021/none.tif")


def test_a_local_name_with_brackets_is_taken_literally(tmp_path):
    (tmp_path / "[x].tif").write_bytes(b"")
    assert found(tmp_path / "[x].tif") == ["[x].tif"]


def test_a_local_folder_needs_no_slash_and_must_exist(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.tif").write_bytes(b"")
    assert found(tmp_path / "a") == ["b.tif"]
    for name in (f"{tmp_path}/none/", f"{tmp_path}/none/*.tif", f"{tmp_path}/a/b.tif/"):
        with pytest.raises(MissingError):
            found(name)


def test_hidden_files_are_found_only_by_name(tmp_path):
    for name in (".hidden.tif", "seen.tif", ".folder/a.tif"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    assert found(f"{tmp_path}/") == ["seen.tif"]
    assert found(f"{tmp_path}/**/*.tif") == ["seen.tif"]
    assert found(f"{tmp_path}/.*.tif") == [".hidden.tif"]
    assert found(f"{tmp_path}/.folder/*.tif") == ["a.tif"]
    assert found(f"{tmp_path}/.f*/*.tif") == ["a.tif"]


def test_links_in_circles_end_and_broken_ones_are_passed_over(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.tif").write_bytes(b"")
    (tmp_path / "a" / "up").symlink_to("..")
    (tmp_path / "a" / "self.tif").symlink_to("self.tif")
    (tmp_path / "a" / "gone.tif").symlink_to("nothing")
    (tmp_path / "again").symlink_to("a")
    os.mkfifo(tmp_path / "a" / "pipe.tif")
    assert found(f"{tmp_path}/**/*.tif") == ["x.tif"]


def test_nothing_outside_the_literal_prefix_is_listed(tmp_path, monkeypatch):
    for name in ("2021/a/x.tif", "2022/a/x.tif"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(b"")
    listed = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: listed.append(str(path)) or scandir(path))
    assert found(f"{tmp_path}/2021/*/x.tif") == ["x.tif"]
    assert all("2022" not in path and path.startswith(f"{tmp_path}/2021") for path in listed)


def test_hostile_patterns_need_no_backtracking():
    assert not Glob("a/" + "**/" * 30 + "b").matches("a/" + "x/" * 60 + "c")
    assert not Glob("a/" + "*a" * 20 + "b").matches("a/" + "a" * 200 + "c")


LISTING = (
    """<?xml version="1.0"?><ListBucketResult><IsTruncated>{more}</IsTruncated>{token}{contents}</ListBucketResult>"""
)
CONTENT = "<Contents><Key>{}</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified><Size>0</Size></Contents>"
TOKEN = "<NextContinuationToken>again</NextContinuationToken>"


def listed(server, url, *keys, endless=False):
    """What is found in a bucket whose every page lists these keys."""
    contents, more = "".join(map(CONTENT.format, keys)), str(endless).lower()
    server.files["bucket"] = LISTING.format(more=more, token=TOKEN if endless else "", contents=contents).encode()
    options = {"endpoint": server.url, "anon": True, "region": "us-east-1", "virtual_hosted_style_request": False}

    async def collect():
        return [source.url async for source in fetch.find(url)]

    with Fetch(storage_options=options, deadline=10.0) as fetch:
        return fetch.run(collect())


@pytest.mark.parametrize("pattern", ["s3://bucket/a/", "s3://bucket/**"])
def test_a_listing_without_end_is_an_error(server, pattern):
    with pytest.raises(FetchError, match="comes back to where it was"):
        listed(server, pattern, *(f"a/{n:03}.tif" for n in range(700)), endless=True)
    assert len(server.log) <= 4


def test_what_stands_for_a_folder_is_not_found_in_it(server):
    assert listed(server, "s3://bucket/a/", "a/", "a/1.tif") == ["s3://bucket/a/1.tif"]


@pytest.mark.parametrize("name", ["a/b//1.tif", "a/../1.tif"])
def test_a_name_that_cannot_be_read_is_told(server, name):
    with pytest.raises(FormatError, match=f"not a name this store can hold.*{name}"):
        listed(server, "s3://bucket/a/", "a/0.tif", name)


def test_a_glob_needs_a_store_that_lists():
    with pytest.raises(FormatError, match="no listing"):
        found("https://host.example/*.tif")


def found(pattern):
    async def collect():
        return [os.path.basename(source.url) async for source in fetch.find(pattern)]

    with Fetch() as fetch:
        return fetch.run(collect())
