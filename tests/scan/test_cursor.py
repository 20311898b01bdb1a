"""The bounded cursor and the blocks: no read past the end of the bytes, no endless requests."""

import random

import pytest

from periplus.errors import FormatError, LimitError
from periplus.limits import Limits
from periplus.model import Need, Source
from periplus.scan.buffer import FileBuffer
from periplus.scan.cursor import Cursor
from periplus.scan.drive import MemoryFolder


def test_numbers_of_both_byte_orders() -> None:
    data = bytes(range(1, 16))
    little, big = Cursor(data), Cursor(data, order=">")
    assert little.unpack("BHIQ") == (1, 0x0302, 0x07060504, 0x0F0E0D0C0B0A0908)
    assert big.unpack("BHIQ") == (1, 0x0203, 0x04050607, 0x08090A0B0C0D0E0F)


def test_text_and_digits() -> None:
    cursor = Cursor(b"UHL1 0042Z\xfc\0 Z\xc3\xbc\0")
    assert cursor.text(4) == "UHL1"
    assert cursor.digits(5) == 42
    assert cursor.text(4) == "Z\u00fc"
    assert cursor.text(4) == "Z\u00fc"
    with pytest.raises(FormatError, match="not a number"):
        cursor.at(0).digits(4)


@pytest.mark.parametrize(
    "step",
    [lambda c: c.unpack("Q"), lambda c: c.take(5), lambda c: c.need(2**62, 8), lambda c: c.need(-1), lambda c: c.at(5)],
)
def test_nothing_is_read_past_the_end(step) -> None:
    with pytest.raises(FormatError) as caught:
        step(Cursor(b"1234", base=100))
    assert caught.value.offset == 100


def answered(asking, data: bytes) -> list[Need]:
    steps = []
    memory = MemoryFolder(data, url="memory:", limits=Limits())
    try:
        step = next(asking)
        while True:
            steps.append(step)
            step = asking.send(memory.answer(step))
    except StopIteration:
        return steps


def test_bytes_in_the_buffer_are_not_requested_again() -> None:
    data = bytes(range(256))
    file = FileBuffer(Source(url="a", size=256), Limits())
    assert answered(file.require("x", 10, 20, ahead=30), data) == [Need(10, 50)]
    assert answered(file.require("x", 30, 30), data) == []
    assert file.locate(30, 30) == (data[10:60], 20)
    assert file.locate(30, 31) is None
    assert file.locate(5, 1) is None


def test_ranges_close_together_are_requested_together() -> None:
    file = FileBuffer(Source(url="a", size=256), Limits())
    ranges = [("x", 200, 10), ("y", 5, 5), ("z", 20, 10)]
    assert answered(file.require_all(ranges, gap=16), bytes(256)) == [(Need(5, 25), Need(200, 10))], "in one round"


def test_a_short_answer_gives_the_size() -> None:
    file = FileBuffer(Source(url="a"), Limits())
    with pytest.raises(FormatError, match="past the end"):
        answered(file.require("x", 10, 100), bytes(60))
    assert file.size == 60


def test_a_range_past_a_known_end_is_never_requested() -> None:
    file = FileBuffer(Source(url="a", size=50), Limits())
    with pytest.raises(FormatError, match="past the end"):
        next(file.require("x", 45, 6))


def test_requests_stay_within_the_limit_and_within_reason() -> None:
    with pytest.raises(LimitError):
        next(FileBuffer(Source(url="a"), Limits(header_bytes=100)).require("x", 0, 101))
    file, data = FileBuffer(Source(url="a", size=1 << 19), Limits()), bytes(1 << 19)
    needs: list[Need] = []
    with pytest.raises(FormatError, match="too often"):
        needs.extend(need for start in range(1000, 0, -1) for need in answered(file.require("x", start, 1 << 18), data))
    assert file.requested > 8 * len(data)


def test_a_range_is_found_wherever_the_blocks_that_cover_it_start() -> None:
    rng = random.Random(5)
    data = bytes(rng.randrange(256) for _ in range(200))
    for _ in range(300):
        file = FileBuffer(Source(url="a", size=len(data)), Limits())
        held: set[int] = set()
        for _ in range(12):
            start = rng.randrange(len(data))
            length = rng.randint(1, min(rng.choice((4, 60)), len(data) - start))
            covered = held.issuperset(range(start, start + length))
            place = file.locate(start, length)
            assert (place is not None) == covered
            if place is not None:
                assert place[0][place[1] : place[1] + length] == data[start : start + length]
            needs = answered(file.require("x", start, length, ahead=rng.choice((0, 20))), data)
            assert bool(needs) != covered
            held.update(position for need in needs for position in range(need.offset, need.offset + need.length))
