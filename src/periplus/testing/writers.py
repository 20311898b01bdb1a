"""Every writer of periplus as a test case: the state before, the write, and what is read from the target."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import periplus
from periplus.testing.formats import tiff as tiffs

PATTERN = "{time:%Y%j}"


@dataclass(frozen=True)
class WriterCase:
    """`begin` makes the state before, `write` replaces it; both get the folder of the index and that of the scenes."""

    name: str
    target: str
    begin: Callable[[Path, Path], None]
    write: Callable[[Path, Path], None]
    sources: bool = True
    """Whether the target is an index of the scenes, not an image."""


def scenes(folder: Path, days: int, *, plus: int = 0) -> list[Path]:
    """Small scenes, each of one value: the day, plus a number."""
    folder.mkdir(exist_ok=True)
    found = []
    for day in range(1, days + 1):
        found.append(folder / f"2021{day:03}.tif")
        found[-1].write_bytes(tiffs.written(np.full((1, 40, 50), day + plus, "u2"), compression="zstd"))
    return found


def nothing(_out: Path, _archive: Path) -> None:
    """There is nothing before."""


def indexed(name: str, days: int, **options: Any) -> Callable[[Path, Path], None]:
    """Index the first scenes."""

    def write(out: Path, archive: Path) -> None:
        named = [archive / f"2021{day:03}.tif" for day in range(1, days + 1)]
        periplus.index(named, to=out / name, arrange="stack", pattern=PATTERN, **options).close()

    return write


def appended(out: Path, archive: Path) -> None:
    """Add the last scene to a dataset."""
    last = sorted(archive.iterdir())[-1]
    periplus.index([last], to=out / "index", arrange="stack", pattern=PATTERN, append=True).close()


def refreshed(out: Path, archive: Path) -> None:
    """Index scenes again that have changed."""
    scenes(archive, 2, plus=100)
    indexed("index", 2, refresh="always")(out, archive)


def journalled(out: Path, archive: Path) -> None:
    """A run that writes a part of its journal after every file."""
    with mock.patch("periplus.harvest.parts.gather.PART_FILES", 1):
        indexed("index.parquet", 3)(out, archive)


def exported(name: str, days: int, **options: Any) -> Callable[[Path, Path], None]:
    """Index the first scenes in memory, and write that."""

    def write(out: Path, archive: Path) -> None:
        named = [archive / f"2021{day:03}.tif" for day in range(1, days + 1)]
        with periplus.index(named, arrange="stack", pattern=PATTERN) as index:
            index.write(out / name, **options)

    return write


def drawn(name: str, day: int) -> Callable[[Path, Path], None]:
    """A window of one scene, by `periplus read -o`."""

    def write(out: Path, archive: Path) -> None:
        from periplus.cli.app import periplus

        arguments = ["read", str(archive / f"2021{day:03}.tif"), "-o", str(out / name), "-q"]
        try:
            periplus.main(arguments, standalone_mode=False)
        except RuntimeError as error:
            if type(error).__name__ == "Abort":  # what click makes of Ctrl-C
                raise KeyboardInterrupt from None
            raise

    return write


WRITERS = [
    WriterCase("flat", "index.parquet", indexed("index.parquet", 2), indexed("index.parquet", 3)),
    WriterCase("flat-new", "index.parquet", nothing, indexed("index.parquet", 3)),
    WriterCase("dataset-new", "index", nothing, indexed("index", 3)),
    WriterCase("dataset-append", "index", indexed("index", 2), appended),
    WriterCase("dataset-remove", "index", indexed("index", 3), indexed("index", 2)),
    WriterCase("dataset-refresh", "index", indexed("index", 2), refreshed),
    WriterCase("duckdb", "index.duckdb", indexed("index.duckdb", 2), indexed("index.duckdb", 3)),
    WriterCase("journal", "index.parquet", indexed("index.parquet", 2), journalled),
    WriterCase("kerchunk-json", "refs.json", exported("refs.json", 2), exported("refs.json", 3)),
    WriterCase("kerchunk-parquet", "refs", exported("refs", 2, form="kerchunk"), exported("refs", 3, form="kerchunk")),
    WriterCase("icechunk", "repo.icechunk", exported("repo.icechunk", 2), exported("repo.icechunk", 3)),
    WriterCase("icechunk-new", "repo.icechunk", nothing, exported("repo.icechunk", 3)),
    WriterCase("read-tif", "x.tif", drawn("x.tif", 1), drawn("x.tif", 2), sources=False),
    WriterCase("read-npy", "x.npy", nothing, drawn("x.npy", 2), sources=False),
    WriterCase("read-png", "x.png", nothing, drawn("x.png", 2), sources=False),
]


def state(writer: WriterCase, out: Path, archive: Path) -> object:
    """What a reader finds at the target, or None. An index must be complete, and its pixels correct."""
    target = out / writer.target
    if not writer.sources:
        return target.read_bytes() if target.exists() else None
    try:
        index = periplus.open(target, allow=[str(archive) + "/"], trust=True)
    except periplus.MissingError:
        return None
    with index:
        assert sum(len(refs) for _, refs in index.table.blocks()) == index.table.rows
        try:
            return tuple(int(value) for value in index["0/data"][:, 0, 0, 0])
        except periplus.StaleError:
            return "stale"  # the sources have changed, and the index is still the old one


class Workspace:
    """A folder in which a writer runs repeatedly from the same state."""

    def __init__(self, writer: WriterCase, base: Path) -> None:
        self.writer = writer
        self.out, self.archive, self._saved = base / "work" / "out", base / "work" / "scenes", base / "saved"
        self.temporary = self.out / "tmp"
        self.temporary.mkdir(parents=True)
        scenes(self.archive, 3)
        writer.begin(self.out, self.archive)
        shutil.copytree(self.out.parent, self._saved)
        self.before = self.state()
        self.write()
        self.after, self.names = self.state(), self.listed()
        if writer.name == "dataset-refresh":
            self.before = "stale"
        assert self.before != self.after

    def restore(self) -> None:
        shutil.rmtree(self.out.parent)
        shutil.copytree(self._saved, self.out.parent)

    def write(self) -> None:
        before, tempfile.tempdir = tempfile.tempdir, str(self.temporary)
        try:
            self.writer.write(self.out, self.archive)
        finally:
            tempfile.tempdir = before

    def state(self) -> object:
        return state(self.writer, self.out, self.archive)

    def listed(self) -> list[str]:
        """All names below the folder of the index, without their random parts."""
        found = []
        for folder, folders, files in os.walk(self.out):
            with suppress(ValueError):
                folders.remove("tmp")
            if self.writer.name.startswith("icechunk"):  # the library names its own files
                files = [name for name in files if name.startswith(".")]
                folders[:] = [name for name in folders if name.startswith(".") or name.endswith(".icechunk")]
            here = os.path.relpath(folder, self.out)
            found += [f"{here}/{re.sub('[0-9a-f]{16}', 'N', name)}" for name in (*folders, *files)]
        return sorted(found)
