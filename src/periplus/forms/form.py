"""What an entry of the registry consists of, and what its functions take and return."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, NamedTuple

from periplus.errors import PeriplusError
from periplus.policy import canonical, is_local

if TYPE_CHECKING:
    from periplus.fetch import Fetch
    from periplus.limits import Limits
    from periplus.table import Table
    from periplus.zarr.icechunk.write import IcechunkCommit


class UnknownOptionError(TypeError):
    """An option that the form of the index does not have, and those that it has."""

    def __init__(self, unknown: Sequence[str], valid: Sequence[str], action: str) -> None:
        self.unknown, self.valid, self.action = unknown, valid, action
        super().__init__(self.message(lambda name: f"{name}="))

    def message(self, spelled: Callable[[str], str]) -> str:
        """The error in the words of an interface, which spells options its own way."""
        unknown, valid = (", ".join(map(spelled, names)) for names in (self.unknown, self.valid))
        options = f"its options are {valid}" if valid else "it has no options"
        return f"{unknown} does not apply to {self.action}; {options}"


class Content:
    """The bytes at a location by which its form is recognised; empty where there are none.

    Nothing is read before it is asked for. Without `fetch`, remote locations are not accessed and have no bytes.
    """

    def __init__(self, url: str, fetch: Fetch | None = None) -> None:
        self._url = canonical(url).removesuffix("/")
        self._fetch = fetch

    def start(self, length: int, *, name: str = "") -> bytes:
        """The first bytes of the file, or of the file `name` in the folder."""
        url = self._location(name)
        if is_local(url):
            return _local_bytes(url, length, end=False)
        return self._fetched(lambda fetch: fetch.read(url, 0, length))

    def end(self, length: int, *, name: str = "") -> bytes:
        """The last bytes of the file, or of the file `name` in the folder."""
        url = self._location(name)
        if is_local(url):
            return _local_bytes(url, length, end=True)
        return self._fetched(lambda fetch: fetch.tail(url, length))

    def _location(self, name: str) -> str:
        return f"{self._url}/{name}" if name else self._url

    def _fetched(self, read: Callable[[Fetch], Any]) -> bytes:
        if self._fetch is None:
            return b""
        try:
            data: bytes = self._fetch.run(read(self._fetch))[0]
        except PeriplusError:
            return b""
        return data


def _local_bytes(path: str, length: int, *, end: bool) -> bytes:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # to open a pipe would wait for who writes to it
            return b""
        with open(path, "rb") as file:
            if end:
                file.seek(max(0, file.seek(0, 2) - length))
            return file.read(length)
    except OSError:
        return b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """An index to open, and what it may access."""

    url: str
    fetch: Fetch
    limits: Limits
    allow: tuple[str, ...] = ()
    trust: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """An index to write, and where to."""

    table: Table
    url: str
    fetch: Fetch
    """It may access the sources of the index."""
    limits: Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteReport:
    """What `Index.write` wrote."""

    url: str
    form: str
    references: int
    files: int
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Arrays that were not written, and why."""
    commit: IcechunkCommit | None = None
    """Of an Icechunk repository: the snapshot, and how many chunks are references or copies."""


class FormResult(NamedTuple):
    """The result of an entry's `write`."""

    table: Table
    """Opened from the location that was written."""
    skipped: Mapping[str, str]
    commit: IcechunkCommit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexForm:
    """One form of an index. The keyword-only parameters of `open` and `write` are its options."""

    name: str
    description: str
    """As a noun phrase, for messages."""
    endings: tuple[str, ...]
    """Of names, which decide which form is tried first; a dataset folder, the default, needs none."""
    recognise: Callable[[Content], bool]
    open: Callable[..., Table]
    write: Callable[..., FormResult]

    def check_options(self, function: Callable[..., Any], given: Iterable[str]) -> None:
        """UnknownOptionError where `function`, one of `open` and `write`, does not have an option."""
        parameters = signature(function).parameters.values()
        valid = [parameter.name for parameter in parameters if parameter.kind is Parameter.KEYWORD_ONLY]
        unknown = [name for name in given if name not in valid]
        if unknown:
            verb = "opening" if function is self.open else "writing"
            raise UnknownOptionError(unknown, valid, f"{verb} {self.description}")
