"""The in-memory driver: answers a scanner from bytes at hand, for tests, fuzzing and small files."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from periplus.errors import FormatError, PeriplusError
from periplus.limits import Limits
from periplus.model import About, Beside, Found, Need, Source

SNIFF_BYTES = 132
"""The longest magic number sits at byte 128."""


def scan_bytes(
    data: bytes | memoryview,
    *,
    url: str = "memory:",
    limits: Limits | None = None,
    scanner: ModuleType | None = None,
    siblings: Mapping[str, bytes] | None = None,
) -> list[Found | About]:
    """Everything a file held in memory says; the format is recognised by content unless `scanner` names it.

    `siblings` are the files beside it, by name.
    """
    from periplus.scan import sniff

    if scanner is None:
        scanner = sniff(bytes(data[:SNIFF_BYTES]))
    if scanner is None:
        raise FormatError("the format is not recognised", url=url, offset=0)
    answers: list[Found | About] = []
    files = {**(siblings or {}), "": data}
    answer: object = None
    try:
        steps = scanner.scan(Source(url=url, size=len(data)), limits or Limits())
        while True:
            step = steps.send(answer)
            answer = None
            if isinstance(step, Need):
                answer = files[step.sibling][step.offset : step.offset + step.length]
            elif isinstance(step, Beside):
                name = next((name for name in step.names if name and name in files), None)
                answer = name and (name, Source(url=f"{url.rpartition('/')[0]}/{name}", size=len(files[name])))
            else:
                answers.append(step)
    except StopIteration:
        return answers
    except PeriplusError as error:
        raise error.at(url=url) from None
