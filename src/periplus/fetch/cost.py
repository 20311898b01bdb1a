"""What one more request costs, in bytes: how large a gap is worth reading over, and what is worth a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from periplus.policy import is_local, scheme_of

KIB = 1 << 10
MIB = 1 << 20
T = TypeVar("T")


def gap(url: str) -> int:
    """Unwanted bytes between two ranges that are cheaper to read than to ask for the second range apart.

    Measured on two cores: a positional read of a cached file costs 2 us and 1 us more for every 32 KiB, so that
    a second one is worth 16 KiB even where the disk is ten times slower than its cache. A range by HTTP costs the
    client 200 us of CPU and 1 us more for every 700 bytes, by S3 350 us: worth about 150 and 250 KB in CPU alone; over
    a network 10 ms of latency at 25 MB/s are 250 KB as well.
    """
    if is_local(url):
        return 16 * KIB
    return 64 * KIB if scheme_of(url) == "memory" else 256 * KIB


def small_gap(url: str) -> int:
    """The largest gap between two ranges that is read as one; longer gaps only between rows as long.

    A range costs CPU, but many travel at once, so that on a network it is bytes that take time: 200 us are 5 KB at
    25 MB/s and 20 KB at 100 MB/s. Over gaps of 256 KiB a lower resolution of small tiles would fetch the whole file.
    """
    return 4 * KIB if is_local(url) else 16 * KIB


def largest(url: str) -> int:
    """Bytes beyond which a merged range is cut, so that its parts travel and decode side by side."""
    return 4 * MIB if is_local(url) else 16 * MIB


def tasks_of(items: Iterable[T], size: Callable[[T], int], least: int) -> list[list[T]]:
    """The items in order, in groups of at least so many bytes: enough to be worth a thread."""
    groups: list[list[T]] = []
    held = least
    for item in items:
        if held >= least:
            groups.append([])
            held = 0
        groups[-1].append(item)
        held += size(item)
    return groups
