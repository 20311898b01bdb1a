"""What an index may reach: its own folder and what the user allows; asked only of rows that are asked for."""

from __future__ import annotations

import os

import numpy as np
import pytest

from periplus.errors import DeniedError
from periplus.table import open_table, write_table
from periplus.table.access import at_rest, resolved
from periplus.testing.indexes import stacked
from periplus.testing.servers.http import RangeServer

FIRST = [(0, 1), (0, 1), (0, 1), (0, 1)]


def written(tmp_path, fetch, paths, name="index.parquet"):
    catalog, refs, files = stacked(steps=len(paths), paths=paths)
    write_table(str(tmp_path / name), catalog, refs.items(), files, fetch=fetch)
    return str(tmp_path / name)


@pytest.mark.parametrize("name", ["index.parquet", "index"])
def test_sources_beside_the_index_are_reached_and_others_are_not(tmp_path, fetch, name):
    (tmp_path / "in").mkdir()
    paths = [str(tmp_path / "in" / "a.tif"), str(tmp_path / "out.tif"), "s3://other/b.tif"]
    table = open_table(written(tmp_path / "in", fetch, paths, name), fetch=fetch)
    assert len(table.refs("0/data", [(0, 1), (0, 1), (0, 4), (0, 6)])) == 24
    for step in (1, 2):
        with pytest.raises(DeniedError, match="may not access"):
            table.refs("0/data", [(step, step + 1), (0, 1), (0, 1), (0, 1)])
    assert table.select(array="0/data").num_rows == 72  # who only looks may see where they are
    allowed = open_table(table.url, fetch=fetch, allow=[str(tmp_path), "s3://other/"])
    assert len(allowed.refs("0/data")) == 72


def test_a_link_does_not_lead_out_of_the_folder(tmp_path, fetch):
    (tmp_path / "in").mkdir()
    (tmp_path / "secret.tif").write_bytes(b"x")
    (tmp_path / "in" / "plain.tif").write_bytes(b"x")
    os.symlink(tmp_path / "secret.tif", tmp_path / "in" / "link.tif")
    os.symlink(tmp_path, tmp_path / "in" / "folder")
    names = ["plain.tif", "link.tif", "folder/secret.tif"]
    table = open_table(written(tmp_path / "in", fetch, [str(tmp_path / "in" / n) for n in names]), fetch=fetch)
    assert len(table.refs("0/data", FIRST)) == 1
    for step in (1, 2):
        with pytest.raises(DeniedError):
            table.refs("0/data", [(step, step + 1), (0, 1), (0, 1), (0, 1)])


def test_a_remote_index_never_opens_a_local_file(tmp_path, fetch):
    (tmp_path / "canary.tif").write_bytes(b"x" * 1000)
    url = written(tmp_path / "w", fetch, [str(tmp_path / "canary.tif"), "http://elsewhere/b.tif"])
    with RangeServer(tmp_path / "w") as server:
        table = open_table(f"{server.url}/index.parquet", fetch=fetch)
        for step in (0, 1):
            with pytest.raises(DeniedError):
                table.refs("0/data", [(step, step + 1), (0, 1), (0, 1), (0, 1)])
    assert os.path.exists(url)


def test_relative_paths_of_a_remote_index_are_urls_beside_it(tmp_path, fetch):
    written(tmp_path, fetch, [str(tmp_path / "tiles" / "a b.tif"), str(tmp_path / "b.tif")])
    written(tmp_path, fetch, [str(tmp_path / "tiles" / "a.tif")], "index")
    with RangeServer(tmp_path) as server:
        table = open_table(f"{server.url}/index.parquet", fetch=fetch)
        assert table.files.path == [f"{server.url}/tiles/a%20b.tif", f"{server.url}/b.tif"]
        assert len(table.refs("0/data", FIRST)) == 1
        assert len(table.refs("0/data", [(1, 2), (0, 1), (0, 1), (0, 1)])) == 1
        dataset = open_table(f"{server.url}/index", fetch=fetch)
        assert dataset.files.path == [f"{server.url}/tiles/a.tif"]
        assert len(dataset.refs("0/data", FIRST)) == 1


HOSTILE = [
    "../x", "a/../../x", "/etc/passwd", "file:///etc/passwd", "//evil/x", "\\\\evil\\x", "a\\..\\x", "a/./b",
    "", "a//b", "%2e%2e/x", "a/%2e%2e/x", "%252e%252e/x", "http://evil/x", "HTTP://EVIL/x",
    "http://me:pw@bucket/x", "http:evil", "s3://other/x", "gs://bucket/x", "s3://bucket@evil/x", "memory://x",
    "ftp://x/y", "http://[::1]/x", "http://2130706433/x", "http://0x7f.1/x", "a\x00b", "a\nb",
    "s3://bucket/in/../x", "s3:/bucket/in/x", "file:/etc/passwd", "FILE:///etc/passwd", "http://127.0.0.1/x",
    "az://c/x", "..", ".", "s3://BUCKET/in/x", "~/x/../y",
]  # fmt: skip


@pytest.mark.parametrize("path", HOSTILE)
def test_hostile_references_are_denied(path):
    from periplus.policy import Policy
    from periplus.table.access import Reach

    index = "s3://bucket/in/index.parquet"
    urls = resolved([path], index)
    with pytest.raises(DeniedError):
        Reach(Policy.beside(index), [path], urls, index).check(np.zeros(1, np.int32))


@pytest.mark.parametrize(
    "path", ["a.tif", "b/c.tif", "ü/ö.tif", "a b.tif", "x=1/y+2.tif", "%41.tif", "a%20b.tif", "a:b.tif", "#1.tif"]
)
@pytest.mark.parametrize("folder", ["/data/x/", "s3://bucket/x/", "https://host/x/"])
def test_a_path_at_rest_resolves_to_itself(path, folder):
    from periplus.policy import canonical

    index = folder + "index.parquet"
    plain = canonical(folder + path)
    (stored,) = at_rest([plain], index)
    assert resolved([stored], index) == [plain]
