"""The learned first read, and the driver between a scanner and the bytes."""

from __future__ import annotations

import itertools
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from periplus import scan
from periplus.errors import LimitError
from periplus.harvest.inputs import Input
from periplus.harvest.scanning.drive import harvest_local, scanned
from periplus.harvest.scanning.head import LEAST, MOST, START, FetchedHeader, HeaderBudget, HeadSize
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
    header = FetchedHeader(Source(url="m", size=len(data)), data[:20_000], HeaderBudget(1 << 20))
    assert bytes(header.find(10, 5) or b"") == data[10:15]
    assert header.find(19_999, 2) is None
    ((start, length),) = header.plan([Need(19_999, 2)])
    assert start == 19_999
    assert length == 40_000, "a miss reads twice as far ahead as the last read"
    header.put(start, data[start : start + length])
    assert bytes(header.find(30_000, 100) or b"") == data[30_000:30_100]
    end = len(data)
    assert header.plan([Need(end - 10, 500)]) == [(end - 10, 10)]
    header.put(end - 10, data[-10:])
    assert bytes(header.find(end - 4, 500) or b"") == data[-4:], "fewer where the file ends"
    beyond = header.find(end + 4, 500)
    assert beyond is not None
    assert len(beyond) == 0


def test_the_header_ends_where_its_pieces_stop_being_near() -> None:
    header = FetchedHeader(Source(url="m", size=10_000_000), b"\0" * 60_000, HeaderBudget(1 << 20))
    for offset, length in ((0, 8), (30_000, 100), (9_000_000, 5_000), (40_000, 50)):
        header.find(offset, length)
    assert header.end == 40_050


def test_the_budget_of_a_file_is_kept() -> None:
    budget = HeaderBudget(50_000)
    header = FetchedHeader(Source(url="m", size=10_000_000), b"\0" * 1000, budget)
    assert header.plan([Need(2_000, 40_000)]) == [(2_000, 40_000)]
    header.put(2_000, b"\0" * 40_000)
    assert header.plan([Need(60_000, 4_000), Need(69_000, 1_000)]) == [(60_000, 8_000), (69_000, 1_000)], "not the gap"
    assert header.plan([Need(60_000, 9_000)]) == [(60_000, 9_000)]
    header.put(60_000, b"\0" * 8_999)
    other = FetchedHeader(Source(url="n", size=10_000_000), b"", budget)
    assert other.plan([Need(0, 1)]) == [(0, 1)], "a sidecar has what the file left"
    with pytest.raises(LimitError):
        header.plan([Need(80_000, 1), Need(90_000, 1)])


def test_a_round_reads_ahead_no_more_than_one_need() -> None:
    size = 100 << 20
    needs = [Need(offset, 500) for offset in range(1 << 20, size, 2 << 20)]
    header = FetchedHeader(Source(url="s3://b/m", size=size), bytes(32 * KIB), HeaderBudget(64 << 20))
    (alone,) = header.plan([needs[0]])
    assert alone == (1 << 20, 64 * KIB)
    header = FetchedHeader(Source(url="s3://b/m", size=size), bytes(32 * KIB), HeaderBudget(64 << 20))
    ranges = header.plan(needs)
    assert [offset for offset, _ in ranges] == [need.offset for need in needs]
    assert {length for _, length in ranges} == {64 * KIB // len(needs)}
    assert {length for _, length in header.plan([Need(n.offset, 500, sparse=True) for n in needs])} == {500}


def test_needs_that_are_near_share_a_range_and_overlaps_are_fetched_once() -> None:
    header = FetchedHeader(Source(url="s3://b/m", size=100 << 20), bytes(32 * KIB), HeaderBudget(64 << 20))
    needs = [Need(9 << 20, 700 * KIB), Need((9 << 20) + 5, 10), Need(8 << 20, 9 * KIB), Need((8 << 20) + 60_000, 1)]
    assert header.plan(needs) == [(8 << 20, 60_001), (9 << 20, 700 * KIB)]
    hops = [Need(offset, 12, sparse=True) for offset in range(1 << 20, 2 << 20, 40_000)]
    assert len(header.plan(hops)) == len(hops), "what lies between small parts far apart is not brought along"


def test_gaps_are_read_over_up_to_a_total() -> None:
    header = FetchedHeader(Source(url="s3://b/m", size=100 << 20), bytes(LEAST), HeaderBudget(64 << 20))
    ranges = header.plan([Need(offset, 10) for offset in range(1 << 20, 50 << 20, 60_000)])
    assert len(ranges) > 700
    assert sum(length for _, length in ranges) < MOST + 820 * 10


@given(
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 800), st.booleans()), min_size=1, max_size=30),
    st.integers(0, 4000),
)
def test_what_a_round_plans_covers_it(places: list[tuple[int, int, bool]], first: int) -> None:
    data = np.random.default_rng(0).bytes(4000)
    header = FetchedHeader(Source(url="m", size=len(data)), data[:first], HeaderBudget(1 << 20))
    needs = [Need(*place) for place in places]
    lacking = [need for need in needs if header.find(need.offset, need.length) is None]
    ranges = header.plan(lacking) if lacking else []
    assert all(a + b <= c for (a, b), (c, _) in itertools.pairwise(ranges)), "nothing is fetched twice"
    for offset, length in ranges:
        header.put(offset, data[offset : offset + length])
    for need in needs:
        assert bytes(header.find(need.offset, need.length) or b"") == data[need.offset : need.offset + need.length]


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
    source = Source(url=file.url, size=len(data))
    ranges = scanned(Input(url=file.url), source, data[:START], HeadSize(), Limits())
    ((_, _, offset, length),) = next(ranges)
    asked.append((offset, length))
    with pytest.raises(StopIteration) as end:
        ranges.send([data[offset : offset + length]])
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

    assert harvested("text").error == "format: unsupported format"
    assert harvested("empty").error == "format: the file is empty"
    assert harvested("absent").error.startswith("missing: ")
    assert harvested("absent").source.url == str(tmp_path / "absent")
    assert harvested("").error == "format: this is a folder"
    assert harvested("text", optional=True).skipped
    assert harvested("text").raised.url == str(tmp_path / "text")
