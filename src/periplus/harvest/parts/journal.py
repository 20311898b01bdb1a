"""The journal of an unfinished run, from which the next run continues: a folder of parts next to the target."""

from __future__ import annotations

import mmap
import secrets
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

from periplus.errors import FormatError, MissingError
from periplus.fetch import Fetch
from periplus.fetch.errors import system_errors
from periplus.fetch.local.atomic import scratch
from periplus.harvest.parts.file import read_part, write_part
from periplus.harvest.parts.part import FileFacts, HarvestPart
from periplus.limits import Limits
from periplus.policy import canonical, is_local

SUFFIX = ".partial/"


class Journal:
    """The folder `<target>.partial/`. Its parts are memory-mapped; those of a remote folder from local copies."""

    def __init__(self, target: str, fetch: Fetch, *, limits: Limits, kind: str = "") -> None:
        self.folder = canonical(target).rstrip("/") + SUFFIX
        self._fetch, self._limits, self._kind = fetch, limits, kind
        self._local = is_local(self.folder)
        self._copies: Path | None = None
        self._open = ExitStack()
        self.damaged = 0
        """Parts that could not be used."""
        self._written: list[str] = []

    def load(self) -> list[tuple[HarvestPart, list[FileFacts]]]:
        """The parts of an earlier run; damaged ones, and those of another version, are skipped."""
        parts = []
        for url in self._listed():
            try:
                if not self._local:
                    self._fetch.run(self._fetch.copy_out(url, self._copy(url)))
                parts.append(self._mapped(self._copy(url)))
            except FormatError:
                self.damaged += 1
        return parts

    def add(self, part: HarvestPart, facts: Sequence[FileFacts]) -> HarvestPart:
        """Write a part; returns it mapped from its file."""
        url = f"{self.folder}part-{secrets.token_hex(8)}"
        data = write_part(part, facts, kind=self._kind)
        if not self._local:
            self._fetch.run(self._fetch.write(self._copy(url), data))
        self._fetch.run(self._fetch.write(url, data))
        self._written.append(url)
        # Arrays read from the file would be copies of those that parts share.
        return replace(self._mapped(self._copy(url))[0], arrays=part.arrays)

    def clear(self) -> None:
        """Remove the journal after the index is written."""
        for url in {*self._listed(), *self._written}:
            try:
                self._fetch.run(self._fetch.delete(url))
            except MissingError:
                continue  # another run with the same target removed it
        if self._local:
            with suppress(OSError):  # an empty folder does no harm, and the index is written
                _remove_folder(Path(self.folder))
        self.close()

    def close(self) -> None:
        """Remove local copies."""
        self._open.close()
        self._copies = None

    def _listed(self) -> list[str]:
        async def found() -> list[str]:
            return [source.url async for source in self._fetch.find(self.folder)]

        try:
            urls = self._fetch.run(found())
        except MissingError:
            return []
        return [url for url in urls if url.rpartition("/")[2].startswith("part-")]

    def _copy(self, url: str) -> str:
        """The local file of a part."""
        if self._local:
            return url
        if self._copies is None:
            self._copies = self._open.enter_context(scratch())
        return str(self._copies / url.rpartition("/")[2])

    def _mapped(self, path: str) -> tuple[HarvestPart, list[FileFacts]]:
        with system_errors(path), Path(path).open("rb") as file:
            try:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError:  # an empty file cannot be mapped
                raise FormatError("a part of the journal is empty", url=path) from None
        part, facts = read_part(memoryview(data), limits=self._limits, kind=self._kind)
        part.maps = (data,)
        part.release()
        return part, facts


def _remove_folder(folder: Path) -> None:
    """Remove the folder and temporary files of a killed writer, unless another writer is active in it."""
    if not folder.is_dir():
        return
    for path in folder.glob(".part-*"):
        with path.open("rb") as file:
            try:
                flock(file.fileno(), LOCK_EX | LOCK_NB)
            except OSError:
                return  # its writer is active
            path.unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()
