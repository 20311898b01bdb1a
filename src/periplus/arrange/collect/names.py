"""Group names for `collect`: unique, safe, and derived from paths below the folder that all files share."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

from periplus.arrange.arrangement import FileEntry
from periplus.errors import redact

_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\\:*?\"<>|]")
_EXTENSION = re.compile(r"(?<=[^/])\.[A-Za-z][A-Za-z0-9]{0,7}$")
_URL_SYNTAX = re.compile("[?#;=%&@]")
"""Characters that may begin a query or a credential."""
_LONGEST = 200


def group_names(entries: Sequence[FileEntry]) -> list[str]:
    """The group of each file, in order; the root group, an empty string, for a single file without a given group."""
    if len(entries) == 1 and entries[0].group is None:
        return [""]
    paths = [_segments(e.source.url) for e in entries]
    shared = _shared([path[:-1] for path, e in zip(paths, entries, strict=True) if e.group is None])
    full = ["/".join(path[shared:]) if e.group is None else _given(e) for path, e in zip(paths, entries, strict=True)]
    bare = [_EXTENSION.sub("", name) if e.group is None else name for name, e in zip(full, entries, strict=True)]
    # If only the extension distinguishes two files, both keep it.
    counts = Counter(bare)
    names = [name if counts[name] == 1 else path for name, path in zip(bare, full, strict=True)]
    return _unique(names, _array_paths(entries, names))


def shared_depth(entries: Sequence[FileEntry]) -> int | None:
    """Number of leading path segments that all folders share; None for fewer than two files, or if groups are given."""
    if len(entries) < 2 or any(entry.group is not None for entry in entries):
        return None
    return _shared([_segments(entry.source.url)[:-1] for entry in entries])


def names_below(
    entries: Sequence[FileEntry], other: str, depth: int, groups: Sequence[str], arrays: Iterable[str]
) -> list[str] | None:
    """Groups of files that are appended to a collection; None if groups of the collection might change.

    `other` is the URL of a file of the collection, `depth` the number of leading segments its folders share, `groups`
    are its groups and `arrays` the names of arrays within them.
    """
    folder = _segments(other)[:depth]
    names = []
    for entry in entries:
        path = _segments(entry.source.url)
        if entry.group is not None or len(path) <= depth or path[:depth] != folder:
            return None
        names.append(_EXTENSION.sub("", "/".join(path[depth:])))
    ordered = sorted(groups)
    if len(set(names)) != len(names) or any(_is_similar(name, ordered) for name in names):
        return None
    inside = {array.name for entry in entries for array in entry.arrays}.union(arrays)
    text = "\n".join((*groups, *names))
    return None if any(f"/{name}" in text for name in inside) else names  # a group might have the path of an array


def _is_similar(name: str, groups: Sequence[str]) -> bool:
    """Whether one of the sorted groups has that name, with or without an extension."""
    for start in (name, name + "."):
        for group in groups[bisect_left(groups, start) :]:
            if not group.startswith(start):
                break
            if name in (group, _EXTENSION.sub("", group)):
                return True
    return False


def safe_segment(text: str) -> str:
    """A path segment without control characters, separators of other systems, or a special meaning."""
    text = _UNSAFE.sub("_", text)[:_LONGEST]
    return text if text.strip(". ") else text.replace(".", "_").replace(" ", "_")


def safe_path(text: str) -> str:
    """A group path of safe segments; never empty."""
    return "/".join(safe_segment(part) for part in text.split("/") if part) or "_"


def _segments(url: str) -> list[str]:
    """The segments of a path; those of folders are cached."""
    folder, _, name = url.rpartition("/")
    if not name or _URL_SYNTAX.search(name) or "?" in folder or "#" in folder or folder.endswith((":/", ":", "/")):
        return _all_segments(url)
    return [*_folders(folder), safe_segment(name)]


@lru_cache(maxsize=256)
def _folders(folder: str) -> tuple[str, ...]:
    return tuple(_all_segments(f"{folder}/_")[:-1])


def _all_segments(url: str) -> list[str]:
    scheme, mark, rest = redact(url).partition("://")
    path = rest.partition("?")[0] if mark else url
    parts = [safe_segment(part) for part in path.split("/") if part] or ["_"]
    return [f"{scheme}_{parts[0]}", *parts[1:]] if mark and len(parts) > 1 else parts


def _given(entry: FileEntry) -> str:
    return safe_path(entry.group or "")


def _shared(folders: Sequence[list[str]]) -> int:
    """Number of leading segments that all folders have in common."""
    if not folders:
        return 0
    low, high = min(folders), max(folders)
    count = 0
    for a, b in zip(low, high, strict=False):
        if a != b:
            break
        count += 1
    return count


def _array_paths(entries: Sequence[FileEntry], names: Sequence[str]) -> set[str]:
    """Paths of arrays, which cannot be groups as well."""
    return {f"{name}/{array.name}" for name, entry in zip(names, entries, strict=True) for array in entry.arrays}


def _unique(names: Sequence[str], arrays: set[str]) -> list[str]:
    seen: set[str] = set()
    result = []
    for wanted in names:
        parts = wanted.split("/")
        for k in range(1, len(parts) + 1):
            if "/".join(parts[:k]) in arrays:
                parts[k - 1] += "_"
        name = plain = "/".join(parts)
        count = 1
        while name in seen:
            count += 1
            name = f"{plain}_{count}"
        seen.add(name)
        result.append(name)
    return result
