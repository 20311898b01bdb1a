"""What a scanner asks for, bytes and names of files, and what it answers."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from periplus.model.arrays import Array
from periplus.model.refs import Refs


@dataclass(frozen=True, slots=True)
class Need:
    """A scanner asks for bytes; it gets exactly these, or fewer where the file ends."""

    offset: int
    length: int
    sparse: bool = False
    """The bytes after it are not needed, so reading ahead is useless."""
    sidecar: str = ""
    """Name of another file, relative to the folder of the scanner's own, that a FirstSidecar or a FolderListing found;
    empty for the scanner's own file."""
    passing: bool = False
    """Looked at once and not kept, so that it does not count as header."""


@dataclass(frozen=True, slots=True)
class FirstSidecar:
    """A scanner asks which of these names is the first that exists in the folder of its file.

    It gets the name and Source of that file, or None where there is none. Asking costs a request for each name, so only
    formats that call for it ask.
    """

    names: tuple[str, ...]
    head: int = 4096
    """Bytes at the file's start that will be asked for next."""


@dataclass(frozen=True, slots=True)
class FolderListing:
    """A scanner asks which objects are below a folder, given by its path relative to the folder of its file.

    It gets a dictionary of Sources by name, in the order of names, at most as many as `Limits.listed` allows for one
    scan. Names are relative to the folder of the scanner's own file too, so that a Need can have one as its `sidecar`.
    Where nothing is below the folder, or there is no such folder, the dictionary is empty. HTTP servers have no
    listings: then a FormatError is raised where the scanner asked, which it may catch; otherwise the file is refused.
    """

    prefix: str = ""
    """Ends in a slash, or is empty for the folder of the scanner's own file."""
    deep: bool = True
    """Whether objects in folders below it are listed; otherwise these folders are, with a slash after the name."""


@dataclass(frozen=True, slots=True)
class Found:
    """A scanner returns one array and the byte ranges of its chunks, in this file or in a sidecar."""

    array: Array
    refs: Refs
    sidecar: str = ""
    """Name of the sidecar that holds the bytes; empty for the scanned file."""
    described_by: tuple[str, ...] = ()
    """Names of sidecars that describe the array, such as a world file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Attributes of the file; at most once a file."""

    datetime: datetime | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)


Round: TypeAlias = tuple[Need, ...] | list[Need]
"""Bytes that are needed together: fetched at once, neighbours in one request, answered in the same order."""
Step: TypeAlias = Need | Round | FirstSidecar | FolderListing | Found | About
Steps: TypeAlias = Generator[Step, Any, None]
"""A Need is answered with bytes, a round with a tuple of them, a FirstSidecar with a name and a Source or with None, a
FolderListing with Sources by name, the others with nothing."""
