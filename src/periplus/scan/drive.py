"""The in-memory driver: answers a scanner from bytes at hand, for tests, fuzzing and small files."""

from __future__ import annotations

from types import ModuleType

from periplus.errors import FormatError, PeriplusError
from periplus.limits import Limits
from periplus.model import About, Found, Need, Source

SNIFF_BYTES = 132
"""The longest magic number sits at byte 128."""


def scan_bytes(
    data: bytes | memoryview, *, url: str = "memory:", limits: Limits | None = None, scanner: ModuleType | None = None
) -> list[Found | About]:
    """Everything a file held in memory says; the format is recognised by content unless `scanner` names it."""
    from periplus.scan import sniff

    if scanner is None:
        scanner = sniff(bytes(data[:SNIFF_BYTES]))
    if scanner is None:
        raise FormatError("the format is not recognised", url=url, offset=0)
    answers: list[Found | About] = []
    try:
        steps = scanner.scan(Source(url=url, size=len(data)), limits or Limits())
        step = next(steps, None)
        while step is not None:
            if isinstance(step, Need):
                try:
                    step = steps.send(data[step.offset : step.offset + step.length])
                except StopIteration:
                    break
            else:
                answers.append(step)
                step = next(steps, None)
    except PeriplusError as error:
        raise error.at(url=url) from None
    return answers
