"""The learned first read, and the driver between a scanner and the bytes."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from periplus import scan
from periplus.errors import LimitError
from periplus.harvest.drive import harvest_local, scanned
from periplus.harvest.head import LEAST, MOST, START, Header, HeadSize
from periplus.harvest.inputs import Input
from periplus.limits import Limits
from periplus.model import About, Array, Found, Need, Refs, Source

KIB = 1 << 10


def test_the_first_read_learns_what_99_of_100_need() -> None:
    size = HeadSize()
    assert size.size == START
    size.observe(41_000)
    assert size.size == 44 * KIB, "one file is enough to learn from; rounded up to 4 KiB"
    for _ in range(500):
        size.observe(41_000)
    size.observe(900_000)
    for _ in range(64):
        size.observe(41_000)
    assert size.size == 44 * KIB, "one large header in hundreds does not make all reads large"
    for _ in range(1500):
        size.observe(100)
    assert size.size == LEAST


def test_a_huge_header_teaches_nothing() -> None:
    size = HeadSize()
    size.observe(MOST + 1)
    assert size.size == START


def test_bytes_come_from_what_was_fetched() -> None:
    data = bytes(range(256)) * 400
    header = Header(Source(url="m", size=len(data)), data[:20_000], most=1 << 20)
    assert bytes(header.find(10, 5) or b"") == data[10:15]
    assert header.find(19_999, 2) is None
    start, length = header.want(19_999, 2)
    assert start == 19_999
    assert length == 40_000, "a miss reads twice as far ahead as the last read"
    header.put(start, data[start : start + length])
    assert bytes(header.find(30_000, 100) or b"") == data[30_000:30_100]
    end = len(data)
    assert header.want(end - 10, 500) == (end - 10, 10)
    header.put(end - 10, data[-10:])
    assert bytes(header.find(end - 4, 500) or b"") == data[-4:], "fewer where the file ends"
    beyond = header.find(end + 4, 500)
    assert beyond is not None
    assert len(beyond) == 0


def test_the_header_ends_where_its_pieces_stop_being_near() -> None:
    header = Header(Source(url="m", size=10_000_000), b"\0" * 60_000, most=1 << 20)
    for offset, length in ((0, 8), (30_000, 100), (9_000_000, 5_000), (40_000, 50)):
        header.find(offset, length)
    assert header.end == 40_050


def test_the_budget_of_a_file_is_kept() -> None:
    header = Header(Source(url="m", size=10_000_000), b"\0" * 1000, most=50_000)
    assert header.want(2_000, 40_000) == (2_000, 40_000)
    header.put(2_000, b"\0" * 40_000)
    assert header.want(60_000, 9_000) == (60_000, 9_000)
    header.put(60_000, b"\0" * 9_000)
    with pytest.raises(LimitError):
        header.want(80_000, 1)


class Fake:
    """A format of one directory somewhere: magic, then where it is (8 bytes), then its length (8 bytes)."""

    NAME = "fake"

    @staticmethod
    def sniff(head: bytes) -> bool:
        return head[:4] == b"FAKE"

    @staticmethod
    def scan(source: Source, limits: Limits) -> Generator[Any, Any, None]:
        head = bytes((yield Need(4, 16)))
        offset, length = int.from_bytes(head[:8], "little"), int.from_bytes(head[8:], "little")
        body = yield Need(offset, length)
        yield About(attributes={"bytes": len(body), "sum": sum(bytes(body))})
        array = Array(name="0/data", dims=("x",), shape=(1,), chunks=(1,), dtype=np.dtype(np.uint8))
        yield Found(array, Refs(chunk=np.zeros((1, 1), np.int32), offset=np.array([0]), length=np.array([1])))


@pytest.fixture(autouse=True)
def fake_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "sniff", lambda head: Fake if Fake.sniff(head) else None, raising=False)


def made(path: Path, offset: int, length: int, size: int) -> SimpleNamespace:
    data = bytearray(np.random.default_rng(1).bytes(size))
    data[:20] = b"FAKE" + offset.to_bytes(8, "little") + length.to_bytes(8, "little")
    path.write_bytes(data)
    return SimpleNamespace(url=str(path), sum=sum(data[offset : offset + length]))


def test_a_local_file_is_scanned_from_its_head(tmp_path: Path) -> None:
    file = made(tmp_path / "a", 100, 50, 200_000)
    size = HeadSize()
    result = harvest_local(Input(url=file.url), file.url, size, Limits())
    assert result.error is None
    assert result.format == "fake"
    assert result.attributes == {"bytes": 50, "sum": file.sum}
    assert result.source.size == 200_000
    assert result.source.last_modified is not None


def test_what_lies_elsewhere_is_fetched_once(tmp_path: Path) -> None:
    file = made(tmp_path / "a", 150_000, 1000, 200_000)
    asked = []
    data = Path(file.url).read_bytes()
    header = Header(Source(url=file.url, size=len(data)), data[:START], most=1 << 20)
    ranges = scanned(Input(url=file.url), header, data[:START], Limits())
    offset, length, *_ = next(ranges)
    asked.append((offset, length))
    with pytest.raises(StopIteration) as end:
        ranges.send(data[offset : offset + length])
    assert end.value.value.attributes["sum"] == file.sum
    assert asked == [(150_000, 50_000)], "the rest of the file is nearer than another request"


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"offset": 1 << 62, "length": 5}, "bytes 0"),
        ({"offset": 0, "length": 1 << 62}, "bytes 5000"),
        ({"length": 1 << 20, "size": 2 << 20}, "limit"),
    ],
)
def test_lies_about_places_are_met(tmp_path: Path, change: dict[str, int], kind: str) -> None:
    file = made(tmp_path / "a", **{"offset": 40, "length": 5, "size": 5_000, **change})
    result = harvest_local(Input(url=file.url), file.url, HeadSize(), Limits(header_bytes=100_000))
    if kind == "limit":
        assert result.error is not None
        assert result.error.startswith("limit: ")
    else:
        assert f"bytes {result.attributes['bytes']}" == kind


def test_what_cannot_be_read_is_a_row_that_says_why(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    (tmp_path / "empty").touch()

    def harvested(name: str, **more: Any) -> Any:
        path = str(tmp_path / name)
        return harvest_local(Input(url=path, **more), path, HeadSize(), Limits())

    assert harvested("text").error == "format: this is no format we read"
    assert harvested("empty").error == "format: the file is empty"
    assert harvested("absent").error.startswith("missing: ")
    assert harvested("absent").source.url == str(tmp_path / "absent")
    assert harvested("").error == "format: this is a folder"
    assert harvested("text", optional=True).skipped
    assert harvested("text").raised.url == str(tmp_path / "text")
