"""What an index may access: its paths resolved against its folder, each distinct one checked once by policy."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from periplus.errors import DeniedError
from periplus.model import Files
from periplus.policy import Policy, canonical, folder_of, is_local, resolve, storable
from periplus.table.templates import flags_of, spelled_paths

if TYPE_CHECKING:
    import pyarrow as pa

_SEGMENT = r"(?!\.{1,2}(?:/|$))[A-Za-z0-9._~=+,@-]+"
_RELATIVE = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*")
_ABSOLUTE = re.compile(rf"(?:(?:s3|gs|az|https?)://[a-z][a-z0-9-]*(?:\.[a-z0-9-]+)*)?(?:/{_SEGMENT})+")
_LINES = re.compile(r"[A-Za-z0-9._~=+,@/\n-]+")
_LEAF = re.compile(_SEGMENT)
"""Spellings that are already canonical, so that thousands of paths cost one match each."""
_DOTS = r"(^|/)\.{1,2}(/|$)"
_PLAIN = r"[A-Za-z0-9._~=+,@-]+"
_PLAIN_RELATIVE = rf"^{_PLAIN}(/{_PLAIN})*$"
_PLAIN_ABSOLUTE = rf"^((s3|gs|az|https?)://[a-z][a-z0-9-]*(\.[a-z0-9-]+)*)?(/{_PLAIN})+$"
"""The same for Arrow's kind of expressions, which do not look ahead: `_DOTS` finds segments that are not plain."""


def at_rest(paths: Sequence[str], index_url: str, keep_query: Collection[str] = ()) -> list[str]:
    """Paths as an index stores them: relative to its folder if below it, else absolute; without credentials."""
    folder = folder_of(index_url)
    answer = []
    for path in paths:
        odd = "=" in path and not path.startswith("/")  # a credential may be a folder of the path
        plain = path if _ABSOLUTE.fullmatch(path) and not odd else storable(path, keep_query)
        inner = plain.removeprefix(folder)
        # A name that would not resolve to itself again stays absolute.
        if inner != plain and (_RELATIVE.fullmatch(inner) or _attempt(index_url, inner) == plain):
            answer.append(inner)
        else:
            answer.append(plain)
    return answer


def stored_paths(files: Files, index_url: str, keep_query: Collection[str] = ()) -> list[str]:
    """As `at_rest`, of a files table; in templates the placeholders stay as they are."""
    flags = flags_of(files)
    if flags is None:
        return at_rest(files.path, index_url, keep_query)
    paths = [path if not many else index_url for path, many in zip(files.path, flags.tolist(), strict=True)]
    return spelled_paths(
        files, at_rest(paths, index_url, keep_query), lambda path: at_rest([path], index_url, keep_query)[0]
    )


def resolved(paths: Sequence[str], index_url: str | None) -> list[str]:
    """Absolute URLs; a path that cannot be resolved stays as it is, and is refused when it is asked for."""
    if index_url is None:
        return list(paths)
    if _are_relative(paths):
        folder = folder_of(index_url)
        return [folder + path for path in paths]
    folder, whole, inner = folder_of(index_url), _ABSOLUTE.fullmatch, _RELATIVE.fullmatch
    urls: dict[str, str] = {}
    for path in paths:
        if path not in urls:
            urls[path] = path if whole(path) else folder + path if inner(path) else _attempt(index_url, path)
    return [urls[path] for path in paths]


def resolved_column(paths: pa.ChunkedArray, index_url: str | None) -> pa.Array:
    """As `resolved`, of a column of strings: many plain paths at once."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from periplus.table.parquet.buffers import strings, to_numpy, to_strings

    texts = paths.cast(pa.string()).combine_chunks()
    if index_url is None:
        return texts
    plain = to_numpy(pc.invert(pc.match_substring_regex(texts, _DOTS)))
    if (plain & to_numpy(pc.match_substring_regex(texts, _PLAIN_ABSOLUTE))).all():
        return texts
    if (plain & to_numpy(pc.match_substring_regex(texts, _PLAIN_RELATIVE))).all():
        folder, nothing = strings([folder_of(index_url)])[0], strings([""])[0]
        return pc.binary_join_element_wise(folder, texts, nothing)
    return strings(resolved(to_strings(texts), index_url))  # type: ignore[arg-type]


def _are_relative(paths: Sequence[str]) -> bool:
    """Whether all paths are surely relative and canonical; looked at together, 100,000 of them cost a few ms."""
    text = "\n".join(paths)
    if not _LINES.fullmatch(text) or text.count("\n") != len(paths) - 1:
        return False
    return not any(odd in f"\n{text}\n" for odd in ("//", "/.", "\n.", "\n/", "/\n", "\n\n"))


def _attempt(index_url: str, path: str) -> str:
    try:
        return resolve(index_url, path)
    except DeniedError:
        return path


class Reach:
    """Remembers which files of an index policy allows."""

    def __init__(self, policy: Policy, paths: Sequence[str], urls: Sequence[str], index_url: str | None) -> None:
        self._policy = policy
        self._paths = paths
        self._urls = urls
        self._index_url = index_url
        self._allowed = np.zeros(len(paths), bool)
        self._folders: dict[str, tuple[bool, bool]] = {}

    def check(self, files: NDArray[np.int32]) -> None:
        """DeniedError where one of these files may not be touched."""
        if self._policy.prefixes is None and self._index_url is None:
            return
        used = np.zeros(len(self._paths) + 1, bool)  # one more, for the -1 of inline rows
        used[files] = True
        plain, folders = _LEAF.fullmatch, self._folders
        for file in np.flatnonzero(used[:-1] & ~self._allowed).tolist():
            url = self._urls[file]
            folder, _, leaf = url.rpartition("/")
            inside, local = folders.get(folder) or self._inside(folder)
            if not inside or plain(leaf) is None or (local and os.path.islink(url)):
                self._check(file, url)
            self._allowed[file] = True

    def _check(self, file: int, url: str) -> None:
        path = self._paths[file]
        if self._index_url is not None:
            resolve(self._index_url, path)  # raises the reason why a path is refused
        # An absolute path is checked as it was written: a user name in it is refused, not dropped.
        self._policy.check(path if "://" in path else url)

    def _inside(self, folder: str) -> tuple[bool, bool]:
        """Whether policy allows the folder, and so everything plainly named in it; and whether it is local."""
        place = folder + "/"
        try:
            self._policy.check(place)
            inside = canonical(place) == place
        except DeniedError:
            inside = False
        self._folders[folder] = inside, is_local(place)
        return self._folders[folder]
