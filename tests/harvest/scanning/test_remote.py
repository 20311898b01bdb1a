"""Remote files: one request for a usual header, hundreds in flight, facts from the same response."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import imagecodecs
import numpy as np
import pytest
import tifffile

from periplus.errors import FormatError, MissingError
from periplus.fetch import Fetch
from periplus.harvest import index_into
from periplus.testing.formats import nitf as nitfs
from periplus.testing.servers.http import Fault, RangeServer, S3Server


@pytest.fixture
def cogs(tmp_path: Path, tiff: SimpleNamespace) -> dict[str, bytes]:
    """Cloud-optimised files of some size, so that one does not fit into the first read."""
    for k in range(3):
        tiff.write(tmp_path / f"{k}.tif", k, cog=True, size=384, block=128, compress="none")
    return {f"{k}.tif": (tmp_path / f"{k}.tif").read_bytes() for k in range(3)}


def asked(server: RangeServer, method: str = "GET") -> Counter[str]:
    return Counter(request.path.lstrip("/") for request in server.log if request.method == method)


def many_tiles(seed: int, tiles: int = 100) -> bytes:
    """A TIFF whose directory lies at the front and takes more than the first read."""
    data = np.full((tiles * 16, tiles * 16), seed, np.uint8)
    out = io.BytesIO()
    tifffile.imwrite(out, data, tile=(16, 16), compression="zlib")
    return out.getvalue()


def test_one_request_for_a_usual_header(server: RangeServer, cogs: dict[str, bytes], fetch: Fetch) -> None:
    server.files.update(cogs)
    table, summary = index_into([f"{server.url}/{name}" for name in cogs], fetch=fetch)
    assert summary.ok == 3
    assert asked(server) == dict.fromkeys(cogs, 1)
    assert not asked(server, "HEAD")
    assert all(request.sent <= 32 << 10 for request in server.log)
    assert table.files.size.tolist() == [len(data) for data in cogs.values()]
    assert list(table.files.etag) == [server.look(name)[2] for name in cogs]
    assert not np.isnat(table.files.last_modified).any()


def test_many_headers_are_in_flight(server: RangeServer, cogs: dict[str, bytes], fetch: Fetch) -> None:
    server.files.update({f"{k}.tif": cogs["0.tif"] for k in range(120)})
    server.latency = 0.1
    _, summary = index_into([f"{server.url}/{k}.tif" for k in range(120)], fetch=fetch)
    assert summary.ok == 120
    assert server.most_waiting > 20
    assert sum(asked(server).values()) == 120


def test_the_first_read_grows_to_what_headers_need(server: RangeServer, fetch: Fetch) -> None:
    server.files.update({f"{k}.tif": many_tiles(k) for k in range(8)})
    _, summary = index_into([f"{server.url}/{k}.tif" for k in range(8)], fetch=fetch, concurrency=1)
    assert summary.ok == 8
    counts = asked(server)
    assert counts["0.tif"] == 2, "the first header is longer than the first read"
    assert [counts[f"{k}.tif"] for k in range(1, 8)] == [1] * 7


def test_a_directory_at_the_end_costs_one_more_request(server: RangeServer, fetch: Fetch, tmp_path: Path) -> None:
    with tifffile.TiffWriter(tmp_path / "a.tif") as writer:
        for k in range(2):
            writer.write(np.full((300, 300), k, np.uint16), contiguous=False)
    server.files["a.tif"] = (tmp_path / "a.tif").read_bytes()
    table, _ = index_into(f"{server.url}/a.tif", fetch=fetch)
    assert set(table.catalog.arrays) == {"0/data", "images/1/0/data"}
    assert asked(server)["a.tif"] <= 3
    assert sum(request.sent for request in server.log) < 200 << 10


def test_remote_failures_are_rows(server: RangeServer, cogs: dict[str, bytes], fetch: Fetch) -> None:
    server.files.update(cogs)
    server.files["bad.tif"] = b"hello"
    server.files["empty.tif"] = b""
    names = ["0.tif", "bad.tif", "gone.tif", "empty.tif"]
    table, summary = index_into([f"{server.url}/{name}" for name in names], fetch=fetch)
    kinds = [None if error is None else error.partition(":")[0] for error in table.files.error]
    assert kinds == [None, "format", "missing", "format"]
    assert summary.failed == 3
    with pytest.raises(MissingError):
        index_into(f"{server.url}/gone.tif", fetch=fetch)
    with pytest.raises(FormatError):
        index_into(f"{server.url}/empty.tif", fetch=fetch)


def test_an_object_that_changes_under_the_scan_is_noticed(server: RangeServer, fetch: Fetch) -> None:
    data = many_tiles(1)
    server.files["a.tif"] = data
    look, seen = server.look, []

    def changing(path: str) -> Any:
        seen.append(path)
        if len(seen) > 1:
            server.files["a.tif"] = data[:-1] + b"x"
        return look(path)

    server.look = changing  # type: ignore[method-assign]
    server.files["b.tif"] = many_tiles(2, 4)
    table, _ = index_into([f"{server.url}/{name}" for name in ("a.tif", "b.tif")], fetch=fetch, concurrency=1)
    assert (table.files.error[0] or "").startswith("stale: ")


def test_what_is_known_costs_a_head_request(
    server: RangeServer, cogs: dict[str, bytes], fetch: Fetch, tmp_path: Path
) -> None:
    server.files.update(cogs)
    urls, to = [f"{server.url}/{name}" for name in cogs], tmp_path / "out.parquet"
    index_into(urls, fetch=fetch, to=to)
    server.log.clear()
    _, summary = index_into(urls, fetch=fetch, to=to)
    assert summary.reused == 3
    assert not asked(server)
    assert asked(server, "HEAD") == dict.fromkeys(cogs, 1)
    server.files["1.tif"] = cogs["2.tif"]
    server.log.clear()
    table, summary = index_into(urls, fetch=fetch, to=to)
    assert asked(server) == {"1.tif": 1}
    assert summary.reused == 2
    assert table.files.etag[1] == table.files.etag[2]
    server.log.clear()
    index_into(urls, fetch=fetch, to=to, refresh="never")
    assert not server.log


def test_without_head_requests_it_is_read_again(
    server: RangeServer, cogs: dict[str, bytes], fetch: Fetch, tmp_path: Path
) -> None:
    server.files.update(cogs)
    urls = [f"{server.url}/{name}" for name in cogs]
    index_into(urls, fetch=fetch, to=tmp_path / "out.parquet")
    server.faults["*"] = [Fault(kind="status-403", times=3)]
    _, summary = index_into(urls, fetch=fetch, to=tmp_path / "out.parquet")
    assert summary.ok == 3


@pytest.mark.s3
def test_an_archive_in_a_bucket(s3: S3Server, cogs: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("periplus.harvest.parts.gather.PART_FILES", 2)
    with Fetch(storage_options=s3.storage_options) as fetch:
        names = [f"2021010{k + 1}.tif" for k in range(3)]
        for name, data in zip(names, cogs.values(), strict=True):
            fetch.run(fetch.write(f"{s3.url}/harvest/in/{name}", data))
        options: dict[str, Any] = {"fetch": fetch, "to": f"{s3.url}/harvest/out/", "pattern": r"(?P<time>\d{8})"}
        table, summary = index_into(f"{s3.url}/harvest/in/*.tif", **options)
        assert table.catalog.arrays["0/data"].shape == (3, 1, 384, 384)
        assert [path.rpartition("/")[2] for path in table.files.path] == names

        reads: list[str] = []
        real = Fetch.read

        async def watched(self: Fetch, url: Any, *rest: Any, **more: Any) -> Any:
            reads.append(str(url).rpartition("/")[2])
            return await real(self, url, *rest, **more)

        monkeypatch.setattr(Fetch, "read", watched)
        _, summary = index_into(f"{s3.url}/harvest/in/*.tif", **options)
        assert summary.reused == 3
        assert not set(names) & set(reads), "the listing said that nothing changed"
        fetch.run(fetch.write(f"{s3.url}/harvest/in/20210104.tif", cogs["0.tif"]))
        table, summary = index_into(f"{s3.url}/harvest/in/*.tif", **options)
        assert summary.reused == 3
        assert reads.count("20210104.tif") == 1
        assert table.catalog.arrays["0/data"].shape[0] == 4

        async def listed() -> list[str]:
            return [source.url async for source in fetch.find(f"{s3.url}/harvest/")]

        assert not [url for url in fetch.run(listed()) if ".partial/" in url]


def test_what_stands_for_a_folder_in_a_bucket_is_no_file(server: RangeServer, cogs: dict[str, bytes]) -> None:
    name, data = next(iter(cogs.items()))
    sizes = {"a/": 0, "a/b/": 0, f"a/b/{name}": len(data)}
    listing = "".join(
        f"<Contents><Key>{key}</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified><Size>{size}</Size></Contents>"
        for key, size in sizes.items()
    )
    server.files["bucket"] = f"<ListBucketResult>{listing}</ListBucketResult>".encode()
    server.files[f"bucket/a/b/{name}"] = data
    options = {"endpoint": server.url, "anon": True, "region": "us-east-1", "virtual_hosted_style_request": False}
    with Fetch(storage_options=options) as fetch:
        for place in ("s3://bucket/a/", "s3://bucket/a/**"):
            table, summary = index_into(place, fetch=fetch)
            assert list(table.files.path) == [f"s3://bucket/a/b/{name}"]
            assert (summary.ok, summary.failed, summary.skipped) == (1, 0, 1)


def test_subheaders_far_apart_cost_one_round(server: RangeServer, fetch: Fetch) -> None:
    values = nitfs.values_of("u16", 1, (512, 512))
    server.files["a.ntf"] = nitfs.nitf(*[nitfs.ImageSegment(values=values, kind="u16") for _ in range(10)])
    server.latency = 0.1
    table, _ = index_into([f"{server.url}/a.ntf"], fetch=fetch, sidecars=False)
    assert len(table.catalog.arrays) == 10
    assert server.most_waiting == 9, "all but the first subheader, at the same time"
    assert sum(request.sent for request in server.log) < 110_000, "and not what lies between them"


def test_a_server_that_gives_no_total_is_asked_for_it(server: RangeServer, fetch: Fetch) -> None:
    picture = np.random.default_rng(1).integers(0, 255, (3, 203, 251), dtype=np.uint8)
    data = imagecodecs.jpeg2k_encode(np.moveaxis(picture, 0, -1), level=0, codecformat="jp2")
    server.files["a.jp2"] = bytes(data)
    server.faults["/a.jp2"] = [Fault(kind="no-total", times=-1)]
    table, summary = index_into(f"{server.url}/a.jp2", fetch=fetch)
    assert summary.ok == 1
    assert table.files.size[0] == len(data)
