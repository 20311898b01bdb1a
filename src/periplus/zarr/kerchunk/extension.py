"""What periplus adds to kerchunk references for its own reader, under names that other readers ignore.

A Parquet directory has an id of its write, in `.zmetadata` and in the footer of every file, and a list of its record
files; both forms have the files table: size, entity tag and time of every source when it was indexed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from periplus.errors import DeniedError, FormatError, StaleError
from periplus.limits import Limits
from periplus.policy import canonical, folder_of, is_local

if TYPE_CHECKING:
    from periplus.model import Files

KEY = "periplus"
"""In `.zmetadata`, and next to `refs` in the JSON document, where it is a list of strings: GDAL's streaming parser
takes every member of an object for a reference, and refuses strings over 10 MB."""
FILES = "files.periplus.parquet"
"""The files table of a directory."""
WRITE, BASE_ID = "periplus.write", "periplus.base"
"""Keys of Parquet footers: the id of the write, and the id of the folder that `{{base}}` stood for."""
BASE = "{{base}}"
PIECE = 1 << 20
MOST_RECORDS = 1 << 20
"""Record files that a directory may declare."""
ID = re.compile(r"[0-9a-f]{16}")
REPLACED = "the index was replaced after it was opened (open it again), or its files are of different writes"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredFiles:
    """What `.zmetadata` declares of its directory; empty where another program, or an earlier version, wrote it."""

    write: str | None = None
    """The id that every file of the directory carries."""
    records: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    """Numbers of the record files of every array, by its path, as ranges (first, stop)."""

    def numbers(self, path: str, most: int) -> list[int] | None:
        """Numbers of the record files that an array has, below `most`; None where that is unknown."""
        if path not in self.records:
            return None
        return [number for first, stop in self.records[path] for number in range(first, min(stop, most))]

    def has(self, path: str, number: int) -> bool:
        """Whether an array should have the record file; a directory that declares its files lists all of them."""
        if path not in self.records:
            return self.write is not None
        return any(first <= number < stop for first, stop in self.records[path])

    def check(self, footer: Mapping[bytes, bytes] | None, key: str) -> None:
        """StaleError where a file of the directory is of another write."""
        if self.write is not None and (footer or {}).get(WRITE.encode()) != self.write.encode():
            raise StaleError(f"{key}: {REPLACED}")

    def lost(self, key: str, now: DeclaredFiles | None) -> StaleError | FormatError:
        """The error for a declared file that is missing; `now` is what the directory declares now, if it is there."""
        if now is None or now.write != self.write:
            return StaleError(f"{key}: {REPLACED}")
        return FormatError(f"{key}: the index is incomplete, this file of it is missing")


def declare(write: str, records: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """The entry of `.zmetadata`."""
    Limits().check("the number of record files", sum(map(len, records.values())), MOST_RECORDS)
    return {"write": write, "files": FILES, "records": {path: _runs(numbers) for path, numbers in records.items()}}


def _runs(numbers: Sequence[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number:
            runs[-1][1] += 1
        else:
            runs.append([number, number + 1])
    return runs


def read_declaration(document: Mapping[str, Any]) -> DeclaredFiles:
    """The entry of a `.zmetadata`, checked."""
    entry = document.get(KEY)
    if entry is None:
        return DeclaredFiles()
    records = entry.get("records") if isinstance(entry, Mapping) else None
    write = entry.get("write") if isinstance(entry, Mapping) else None
    if not isinstance(records, Mapping) or not isinstance(write, str) or not ID.fullmatch(write):
        raise FormatError(f".zmetadata: {KEY} is malformed")
    total = 0
    for path, runs in records.items():
        if not isinstance(runs, list):
            raise FormatError(f".zmetadata: the record files of {path!r} are not a list")
        end = -1
        for run in runs:
            if not isinstance(run, list) or len(run) != 2 or any(type(n) is not int for n in run):
                raise FormatError(f".zmetadata: the record files of {path!r} are not ranges")
            if not end < run[0] < run[1]:
                raise FormatError(f".zmetadata: the record files of {path!r} are not in order")
            end = run[1]
            total += run[1] - run[0]
    Limits().check(".zmetadata: the number of record files", total, MOST_RECORDS)
    return DeclaredFiles(write=write, records={path: [(a, b) for a, b in runs] for path, runs in records.items()})


# --- the files table ------------------------------------------------------------------------------------------------


def pack_files(files: Files, urls: Sequence[str], *, folder: str | None, write: str = "") -> bytes:
    """The files table as Parquet, with URLs as the references have them; `folder` is what `{{base}}` stands for."""
    from periplus.table.parquet.files import files_to_arrow
    from periplus.table.parquet.sinks import files_parquet

    rows = list({url: row for row, url in reversed(list(enumerate(urls)))}.values())[::-1]
    if len(rows) < len(urls):  # URLs that differed in credentials only
        files, urls = files.take(np.array(rows, np.intp)), [urls[row] for row in rows]
    keys = {WRITE: write} if write else {}
    if folder is not None:
        keys[BASE_ID] = _id(folder)
        files = replace(files, error=[text and text.replace(folder, BASE) for text in files.error])
    buffer = io.BytesIO()
    files_parquet(files_to_arrow(files, urls), buffer, keys)
    return buffer.getvalue()


def unpack_files(
    raw: bytes, fill: Callable[[str, str], str], *, url: str, limits: Limits, written: DeclaredFiles | None = None
) -> Files:
    """The files table with templates filled in; of files in another folder than the one indexed, only the size is kept.

    In another folder the entity tags and times are those of copies.
    """
    from periplus.table.parquet.part import read_embedded

    try:
        files, footer = read_embedded(raw, limits, url)
    except FormatError as error:
        error.message = f"the files table that periplus adds to references is damaged: {error.message}"
        raise
    if written is not None:
        written.check(footer, FILES)
    there = footer.get(BASE_ID.encode())
    paths = [fill(path, FILES) for path in files.path]
    if len(set(paths)) != len(paths):
        raise FormatError("the files table lists a path twice")
    moved = np.array([BASE in path for path in files.path], bool)
    if moved.any() and (there is None or there.decode("latin-1") != _here(fill, url)):
        etags = [None if away else etag for away, etag in zip(moved.tolist(), files.etag, strict=True)]
        times = np.where(moved, np.datetime64("NaT", "us"), files.last_modified)
        return replace(files, path=paths, etag=etags, last_modified=times)
    return replace(files, path=paths)


def _here(fill: Callable[[str, str], str], url: str) -> str | None:
    """The id of the folder that `{{base}}` stands for now."""
    base = fill(BASE, FILES)
    try:
        relative = is_local(base) and not base.startswith(("/", "file:"))
        return _id(canonical(folder_of(url) + base if relative else base))
    except DeniedError:
        return None


def _id(folder: str) -> str:
    """Identifies a folder without revealing its name."""
    return hashlib.sha256(folder.removesuffix("/").encode("utf-8", "surrogatepass")).hexdigest()[:16]


def to_text(raw: bytes) -> list[str]:
    """The files table for a JSON document."""
    text = base64.b64encode(raw).decode("ascii")
    return [text[start : start + PIECE] for start in range(0, len(text), PIECE)]


def from_text(document: Mapping[str, Any]) -> bytes | None:
    """The files table of a JSON document, where it has one."""
    pieces = document.get(KEY) if document.get("version") == 1 else None
    if pieces is None:
        return None
    if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
        raise FormatError(f"{KEY} is not a list of strings")
    try:
        raw = base64.b64decode("".join(pieces), validate=True)
    except (binascii.Error, ValueError):
        raise FormatError("the files table is not base64") from None
    if not raw:
        raise FormatError(f"{KEY} is empty, and not the files table that periplus adds to references")
    return raw
