"""Names of groups for `collect`: from paths below the folder all files share, unique and safe."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

from periplus.arrange.entry import Entry
from periplus.errors import redact

_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\\:*?\"<>|]")
_EXTENSION = re.compile(r"(?<=[^/])\.[A-Za-z][A-Za-z0-9]{0,7}$")
_ODD = re.compile("[?#;=%&@]")
"""What may begin a query or a credential in a name."""
_LONGEST = 200


def group_names(entries: Sequence[Entry]) -> list[str]:
    """One group a file, in order; a single file without a group of its own needs none: the empty string."""
    if len(entries) == 1 and entries[0].group is None:
        return [""]
    paths = [_segments(e.source.url) for e in entries]
    shared = _shared([path[:-1] for path, e in zip(paths, entries, strict=True) if e.group is None])
    full = ["/".join(path[shared:]) if e.group is None else _given(e) for path, e in zip(paths, entries, strict=True)]
    bare = [_EXTENSION.sub("", name) if e.group is None else name for name, e in zip(full, entries, strict=True)]
    # Where only the extension tells two files apart, both keep theirs.
    often = Counter(bare)
    names = [name if often[name] == 1 else whole for name, whole in zip(bare, full, strict=True)]
    return _unique(names, _taken(entries, names))


def shared_depth(entries: Sequence[Entry]) -> int | None:
    """How many leading segments the folders of all files share; None where some groups were given, or none is."""
    if len(entries) < 2 or any(entry.group is not None for entry in entries):
        return None
    return _shared([_segments(entry.source.url)[:-1] for entry in entries])


def names_below(
    entries: Sequence[Entry], other: str, depth: int, groups: Sequence[str], arrays: Iterable[str]
) -> list[str] | None:
    """Groups of files that join others; None where a name of these would surely not stay.

    `other` is the URL of one of them, `depth` how many segments the folders of all share, `groups` are their groups and
    `arrays` the names that arrays have within these.
    """
    folder = _segments(other)[:depth]
    names = []
    for entry in entries:
        path = _segments(entry.source.url)
        if entry.group is not None or len(path) <= depth or path[:depth] != folder:
            return None
        names.append(_EXTENSION.sub("", "/".join(path[depth:])))
    ordered = sorted(groups)
    if len(set(names)) != len(names) or any(_is_alike(name, ordered) for name in names):
        return None
    inside = {array.name for entry in entries for array in entry.arrays}.union(arrays)
    text = "\n".join((*groups, *names))
    return None if any(f"/{name}" in text for name in inside) else names  # an array may be where a group is


def _is_alike(name: str, groups: Sequence[str]) -> bool:
    """Whether one of the sorted groups has that name, or differs from it by an extension alone."""
    for start in (name, name + "."):
        for group in groups[bisect_left(groups, start) :]:
            if not group.startswith(start):
                break
            if name in (group, _EXTENSION.sub("", group)):
                return True
    return False


def safe_segment(text: str) -> str:
    """One path segment without control characters, separators of other systems, or a meaning of its own."""
    text = _UNSAFE.sub("_", text)[:_LONGEST]
    return text if text.strip(". ") else text.replace(".", "_").replace(" ", "_")


def safe_path(text: str) -> str:
    """A group path whose segments are all safe; never empty."""
    return "/".join(safe_segment(part) for part in text.split("/") if part) or "_"


def _segments(url: str) -> list[str]:
    """The segments of a path; folders, which many files share, are looked at once."""
    folder, _, name = url.rpartition("/")
    if not name or _ODD.search(name) or "?" in folder or "#" in folder or folder.endswith((":/", ":", "/")):
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


def _given(entry: Entry) -> str:
    return safe_path(entry.group or "")


def _shared(folders: Sequence[list[str]]) -> int:
    """How many leading segments all folders have in common."""
    if not folders:
        return 0
    low, high = min(folders), max(folders)
    count = 0
    for a, b in zip(low, high, strict=False):
        if a != b:
            break
        count += 1
    return count


def _taken(entries: Sequence[Entry], names: Sequence[str]) -> set[str]:
    """Paths that are arrays, which therefore cannot be groups as well."""
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
