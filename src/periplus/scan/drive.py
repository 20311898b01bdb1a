"""The in-memory driver: answers a scanner from bytes in memory, for tests, fuzzing and small files."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from periplus.errors import DeniedError, FormatError, MissingError, PeriplusError
from periplus.limits import Limits
from periplus.model import About, FirstSidecar, FolderListing, Found, Need, Source
from periplus.scan.sidecars import check_name, check_prefix

SNIFF_BYTES = 132
"""The longest magic number sits at byte 128."""


def scan_bytes(
    data: bytes | memoryview,
    *,
    url: str = "memory:",
    limits: Limits | None = None,
    scanner: ModuleType | None = None,
    sidecars: Mapping[str, bytes] | None = None,
    listable: bool = True,
) -> list[Found | About]:
    """Arrays and metadata of a file in memory; the format is recognised by content unless `scanner` names it.

    `sidecars` are other files by their paths from its folder; `listable` declares whether they can be listed.
    """
    from periplus.scan import sniff

    if scanner is None:
        scanner = sniff(bytes(data[:SNIFF_BYTES]))
    if scanner is None:
        raise FormatError("the format is not recognised", url=url, offset=0)
    answers: list[Found | About] = []
    folder = MemoryFolder(data, url=url, limits=limits or Limits(), sidecars=sidecars, listable=listable)
    try:
        steps = scanner.scan(Source(url=url, size=len(data)), limits or Limits())
        step = next(steps)
        while True:
            if isinstance(step, Found | About):
                answers.append(step)
                step = next(steps)
                continue
            try:
                answer = folder.answer(step)
            except (FormatError, DeniedError) as error:
                if not isinstance(step, FolderListing):
                    raise
                step = steps.throw(error)  # the scanner may have another way
            else:
                step = steps.send(answer)
    except StopIteration:
        return answers
    except PeriplusError as error:
        raise error.at(url=url) from None


class MemoryFolder:
    """A file and its sidecars in memory: answers what a scanner asks for."""

    def __init__(
        self,
        data: bytes | memoryview,
        *,
        url: str,
        limits: Limits,
        sidecars: Mapping[str, bytes] | None = None,
        listable: bool = True,
    ) -> None:
        own = url.rpartition("/")[2]
        self._folder = url[: len(url) - len(own)]
        self._files: dict[str, bytes | memoryview] = {**(sidecars or {}), "": data}
        if not own.endswith(":"):
            self._files[own] = data
        self._url, self._limits, self._listable = url, limits, listable
        self._listed = 0

    def answer(self, step: Any) -> Any:
        """Bytes, a tuple of them, the file that was looked for, or a listing."""
        if isinstance(step, Need):
            return self._bytes(step)
        if isinstance(step, tuple | list):
            return tuple(self._bytes(need) for need in step)
        if isinstance(step, FirstSidecar):
            names = [check_name(name) for name in step.names]
            name = next((name for name in names if name in self._files), None)
            return name and (name, self._source(name))
        if isinstance(step, FolderListing):
            return self._list(step)
        raise TypeError(f"a scanner may not ask for {type(step).__name__}")

    def _bytes(self, need: Need) -> bytes | memoryview:
        if need.sidecar and check_name(need.sidecar) not in self._files:
            raise MissingError("no such file was found", url=self._folder + need.sidecar)
        return self._files[need.sidecar][need.offset : need.offset + need.length]

    def _source(self, name: str) -> Source:
        return Source(url=self._folder + name, size=len(self._files[name]))

    def _list(self, step: FolderListing) -> dict[str, Source]:
        prefix = check_prefix(step.prefix)
        if not self._listable:
            raise FormatError("this store has no listing", url=self._folder + prefix)
        found: dict[str, Source] = {}
        for name in sorted(name for name in self._files if name and name.startswith(prefix)):
            inner, slash, _ = name[len(prefix) :].partition("/")
            if slash and not step.deep:
                found[f"{prefix}{inner}/"] = Source(url=f"{self._folder}{prefix}{inner}/")
            else:
                found[name] = self._source(name)
        self._listed += len(found)
        self._limits.check("the number of listed objects", self._listed, self._limits.listed, url=self._url)
        return found
