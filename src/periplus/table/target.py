"""What may be written to: a target where nothing is, or an index of the form that is written, whole or damaged."""

from __future__ import annotations

import mmap
import os
import re
import stat
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from periplus.errors import FormatError, MissingError, PeriplusError
from periplus.fetch.errors import mapped
from periplus.limits import Limits
from periplus.model import Files
from periplus.policy import WEB, canonical, is_local, scheme_of
from periplus.table.stored_form import (
    FILES_NAME,
    KEY,
    PARQUET_MAGIC,
    Content,
    dataset_folder,
    is_dataset,
    is_duckdb,
    is_flat,
)
from periplus.table.templates import Template, flags_of

if TYPE_CHECKING:
    from periplus.fetch import Fetch
    from periplus.table.table import Table

PART = re.compile(r"\.lock|\.files\.parquet\.periplus-.*|(chunks|placements)/\.?part-[^/]*")
"""Files of a dataset besides its files table, unfinished ones too."""


def check_target(url: str, form: str, *, fetch: Fetch, sources: Files | None = None) -> None:
    """FormatError where an index of one of our own forms would replace something else, or one of its sources."""
    if form == "dataset":
        folder = dataset_folder(canonical(url))
        files = Content(folder + FILES_NAME, fetch, strict=True)

        def belongs(name: str) -> bool:
            return PART.fullmatch(name) is not None or (name == FILES_NAME and _is_unfinished(files))

        check_folder(folder, "a dataset folder", is_dataset, belongs, fetch=fetch)
    elif form == "flat":
        check_file(url, "a flat Parquet index", partial(_is_flat, url, fetch), fetch=fetch, sources=sources)
    elif form == "duckdb":
        check_file(url, "a DuckDB index", partial(_is_database, url), fetch=fetch, sources=sources)


def form_at(url: str, fetch: Fetch) -> str | None:
    """The form of the index of ours that is at a target; None where there is none."""
    content = Content(dataset_folder(canonical(url)), fetch, strict=True)
    if is_dataset(content):
        return "dataset"
    return "flat" if is_flat(content) else "duckdb" if is_duckdb(content) else None


def check_file(
    url: str,
    description: str,
    is_index: Callable[[Content], bool],
    *,
    fetch: Fetch,
    sources: Files | None = None,
) -> None:
    """FormatError unless the target is missing, an empty file or an index; or where it is a source of the index."""
    plain = canonical(url).rstrip("/")
    if scheme_of(plain) in WEB:
        return  # read only, which the writer reports
    if sources is not None and _is_source(plain, sources):
        raise _needed("is a source of the index", plain)
    found = _found(plain, fetch)
    if found == "folder":
        raise _refusal(f"is a folder, not {description}", plain)
    if found == "special":
        raise _refusal(f"is a pipe, a socket or a device, not {description}", plain)
    if found == "file" and not is_index(Content(plain, fetch, strict=True)):
        raise _refusal(f"is not {description}", plain)


def check_folder(
    url: str,
    description: str,
    is_index: Callable[[Content], bool],
    belongs: Callable[[str], bool],
    *,
    fetch: Fetch,
) -> None:
    """FormatError unless the target is missing, an empty folder, an index, or only files that belong to one.

    A folder in it that is a link to a place outside does not belong to it.
    """
    plain = canonical(url).rstrip("/")
    if not is_folder(plain, description, fetch=fetch):
        return
    if is_local(plain) and (link := _link_out_of(plain)) is not None:
        raise _refusal(f"contains {link!r}, a link to another place, where files would be written or deleted", plain)
    if is_index(Content(plain, fetch, strict=True)):
        return
    foreign = fetch.run(_first(plain + "/", fetch, lambda name: not belongs(name)))
    if foreign is not None:
        raise _refusal(f"contains {foreign!r}, which does not belong to {description}", plain)


def _link_out_of(folder: str) -> str | None:
    """The name of a folder or files table directly in a folder that is a link to a place outside of it."""
    home = os.path.realpath(folder) + "/"
    with mapped(folder), os.scandir(folder) as entries:
        links = [entry for entry in entries if entry.is_symlink() and (entry.is_dir() or entry.name == FILES_NAME)]
    return next((entry.name for entry in links if not os.path.realpath(entry.path).startswith(home)), None)


def is_folder(url: str, description: str, *, fetch: Fetch) -> bool:
    """Whether there is a folder at the target of a folder; FormatError where there is a file."""
    plain = canonical(url).rstrip("/")
    if scheme_of(plain) in WEB:
        return False  # read only, which the writer reports
    found = _found(plain, fetch)
    if found in ("file", "special") or (found == "empty" and is_local(plain)):
        raise _refusal(f"is a file, not {description}", plain)
    return found == "folder"


def check_output(path: str, index_url: str | None, table: Table) -> None:
    """FormatError where a local file to be written is the index at `index_url`, a part of it, or one of its sources."""
    plain = os.path.abspath(path)
    if index_url is not None and is_local(index_url):
        home = canonical(index_url).rstrip("/")
        if table.document.pieces is not None:
            home = home.removesuffix("/" + FILES_NAME)
        target, home = os.path.realpath(plain), os.path.realpath(home)
        if target.startswith(home + "/"):
            raise _needed("is inside the index that is read", plain)
        if target == home or (os.path.exists(target) and _is_file(home, os.stat(target))):
            raise _needed("is the index or file that is read", plain)
    if os.path.lexists(plain) and _is_source(plain, table.files):  # a name that is free is not looked up
        raise _needed("is a source of the index", plain)


def _is_source(plain: str, files: Files) -> bool:
    """Whether a target is one of the files, by its own name or by another: links, and objects of path templates."""
    names = {plain, os.path.realpath(plain)} if is_local(plain) else {plain}
    if not names.isdisjoint(files.path):
        return True
    flags = flags_of(files)
    for row in [] if flags is None else np.flatnonzero(flags).tolist():
        objects = re.compile("[0-9]+".join(map(re.escape, Template.parse(files.path[row]).literals)))
        if any(objects.fullmatch(name) for name in names):
            return True
    if not is_local(plain) or not os.path.exists(plain):
        return False
    status = os.stat(plain)
    alike = np.flatnonzero((files.size == status.st_size) | (files.size < 0))  # no others need to be looked up
    return any(is_local(path) and _is_file(path, status) for path in (files.path[row] for row in alike.tolist()))


def _is_file(path: str, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), status)
    except (OSError, ValueError):
        return False


def _needed(reason: str, url: str) -> FormatError:
    return FormatError(f"the target {reason}; nothing was written: choose another name", url=url)


def _refusal(reason: str, url: str) -> FormatError:
    return FormatError(
        f"the target {reason}; nothing was written: choose another name, or delete what is there", url=url
    )


def _found(plain: str, fetch: Fetch) -> Literal["file", "empty", "special", "folder"] | None:
    """What is at a target; in a store, a folder is the objects whose names begin with it."""
    if is_local(plain):
        try:
            with mapped(plain):
                status = os.stat(plain)
        except MissingError:
            return None
        if stat.S_ISDIR(status.st_mode):
            return "folder"
        if not stat.S_ISREG(status.st_mode):
            return "special"
        return "empty" if status.st_size == 0 else "file"
    try:
        return "empty" if fetch.run(fetch.head(plain)).size == 0 else "file"
    except MissingError:
        return None if fetch.run(_first(plain + "/", fetch, bool)) is None else "folder"


async def _first(folder: str, fetch: Fetch, wanted: Callable[[str], bool]) -> str | None:
    """The first name in a folder that is wanted; None also for a remote folder that may not be listed."""
    try:
        async for source in fetch.below(folder):
            name = source.url.removeprefix(folder)
            if name and not name.endswith("/") and wanted(name):
                return name
    except PeriplusError:
        if is_local(folder):
            raise
    return None


def _is_unfinished(content: Content) -> bool:
    """Whether a file is empty, or Parquet without its end."""
    head = content.start(4)
    return not head or (head == PARQUET_MAGIC and content.end(4) != PARQUET_MAGIC)


def _is_flat(url: str, fetch: Fetch, content: Content) -> bool:
    from periplus.table.open import glance

    if not is_flat(content):
        return _is_unfinished(content)
    if not canonical(url).endswith("/" + FILES_NAME):
        return True
    try:
        glance(url, fetch=fetch, limits=Limits())
    except PeriplusError:
        return True
    return False  # the files table of a dataset, whose parts would be lost


def _is_database(url: str, content: Content) -> bool:
    """Whether a DuckDB file has the key of an index; a database of another purpose does not."""
    if not is_duckdb(content) or not is_local(url):
        return is_duckdb(content)
    plain = canonical(url)
    with mapped(plain), open(plain, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(KEY) >= 0
