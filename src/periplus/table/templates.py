"""Path templates: one row of the files table for very many objects, each named by the chunk position of its rows."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError
from periplus.limits import Allowance
from periplus.model import Array, Files, Refs, Source

if TYPE_CHECKING:
    from periplus.table.table import Table

COLUMN = "template"
"""The column of the files table that marks paths that are templates."""
OBJECT_BYTES = 256
"""About what one object costs in memory: its URL and its row."""
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_MARK = "periplus-place-"
"""Stands for a placeholder while a template is treated as a URL, in which braces would be escaped."""
_MARKED = re.compile(_MARK + r"(\d+)-")


@dataclass(frozen=True, slots=True)
class Template:
    """A path with placeholders of dimension names: `{time}/{y}.{x}`."""

    text: str
    literals: tuple[str, ...]
    """What is before, between and after the placeholders."""
    dims: tuple[str, ...]
    """One for each placeholder."""

    @classmethod
    def parse(cls, text: str) -> Template:
        """The template of a path; FormatError where braces are not those of placeholders."""
        pieces = _PLACEHOLDER.split(text)
        literals, dims = tuple(pieces[::2]), tuple(pieces[1::2])
        if any("{" in literal or "}" in literal for literal in literals) or _MARK in text:
            raise FormatError(f"the path template {text!r:.200} has a brace that belongs to no placeholder")
        if not dims:
            raise FormatError(f"the path template {text!r:.200} has no placeholder")
        return cls(text, literals, dims)

    def spell(self, function: Callable[[str], str]) -> str:
        """The template through a function of URLs; FormatError if a placeholder is then outside of the path."""
        marked = "".join(f"{literal}{_MARK}{k}-" for k, literal in enumerate(self.literals[:-1])) + self.literals[-1]
        spelled = function(marked)
        scheme, remote, rest = spelled.partition("://")
        if (remote and _MARK in scheme + rest.partition("/")[0]) or [int(k) for k in _MARKED.findall(spelled)] != list(
            range(len(self.dims))
        ):
            raise FormatError(f"the path template {self.text!r:.200} has a placeholder outside of its path")
        return _MARKED.sub(lambda found: "{" + self.dims[int(found[1])] + "}", spelled)

    def check(self, array: Array) -> None:
        """FormatError where a placeholder names no dimension of an array."""
        for dim in self.dims:
            if dim not in array.dims:
                raise FormatError(
                    f"the path template {self.text!r:.200} names {dim!r:.60}, which is no dimension of {array.name!r}: "
                    f"it has {', '.join(array.dims) or 'none'}"
                )

    def fill(self, positions: NDArray[np.int32]) -> list[str]:
        """Paths of objects: one for each column of `positions`, whose rows are those of `dims`."""
        columns = [map(str, row) for row in positions.tolist()]
        head, *tail = self.literals
        return [head + "".join([n + rest for n, rest in zip(numbers, tail, strict=True)]) for numbers in zip(*columns)]


def flags_of(files: Files) -> NDArray[np.bool_] | None:
    """Which rows of the files table are templates; None where none is. FormatError where the column is not of flags."""
    column = files.columns.get(COLUMN)
    if column is None:
        return None
    if column.dtype.kind != "b":
        if not all(item is None or isinstance(item, bool | np.bool_) for item in column.tolist()):
            raise FormatError(f"the column {COLUMN!r} of the files table must hold booleans")
        column = np.array([bool(item) for item in column.tolist()], np.bool_)
    if not column.any():
        return None
    for row in np.flatnonzero(column).tolist():
        if files.size[row] >= 0 or files.etag[row] is not None:
            raise FormatError(f"{files.path[row]!r:.200} is a template of many objects, and has the size or tag of one")
    return np.asarray(column, np.bool_)


def spelled_paths(files: Files, paths: list[str], function: Callable[[str], str]) -> list[str]:
    """`paths`, those of templates replaced by what a function of URLs makes of them."""
    flags = flags_of(files)
    for row in [] if flags is None else np.flatnonzero(flags).tolist():
        paths[row] = Template.parse(files.path[row]).spell(function)
    return paths


def expand(
    files: Files, flags: NDArray[np.bool_], array: Array, refs: Refs, check: Callable[[str], object]
) -> tuple[Refs, dict[int, Source]]:
    """Rows in which each object of a template has its own number, beyond those of the files; and these objects.

    `check` raises where an object may not be touched.
    """
    number = np.zeros(len(refs), np.int32) if refs.file is None else refs.file.copy()
    objects: dict[int, Source] = {}
    meant = np.append(flags, False)[number]  # one more, for the -1 of inline rows
    following = len(files)
    for file in np.unique(number[meant]).tolist():
        template = Template.parse(files.path[file])
        template.spell(str)
        template.check(array)
        rows = np.flatnonzero(number == file)
        places = refs.chunk[[array.dims.index(dim) for dim in template.dims]][:, rows]
        distinct, which = np.unique(places, axis=1, return_inverse=True)
        for k, url in enumerate(template.fill(distinct)):
            check(url)
            objects[following + k] = Source(url=url)
        number[rows] = following + which.reshape(-1)
        following += distinct.shape[1]
    return replace(refs, file=number), objects


def expanded(table: Table) -> Table:
    """The same index with a row of the files table for every object; the table itself where it has no template."""
    from periplus.table.memory import MemoryRows

    flags = flags_of(table.files)
    if flags is None:
        return table
    files, count = table.files, len(table.files)
    numbers: dict[str, int] = {}
    # The first objects take the rows of the templates, so that the other files keep their numbers.
    free = [*np.flatnonzero(flags).tolist()]
    held = Allowance("the objects of path templates", table.limits.memory_bytes // 2, advice="export fewer arrays")
    refs: dict[str, Refs] = {}
    for name, array in table.catalog.arrays.items():
        found, objects = table.objects(array, table.refs(name))
        held.take(OBJECT_BYTES * len(objects))
        for source in objects.values():
            if source.url not in numbers:
                numbers[source.url] = free.pop(0) if free else count + len(numbers) - int(flags.sum())
        known = [numbers[source.url] for source in objects.values()]
        if found.file is not None:
            found = replace(found, file=np.array([*range(count), *known, -1], np.int32)[found.file])
        refs[name] = found
    paths = list(files.path)
    for url, number in numbers.items():
        if number < count:
            paths[number] = url
    own = replace(files, path=paths, columns={k: v for k, v in files.columns.items() if k != COLUMN})
    whole = Files.joined(own, Files.of(Source(url=url) for url, number in numbers.items() if number >= count))
    rows = MemoryRows(refs=refs, sources=whole, count=sum(map(len, refs.values())))
    return type(table)(table.document, rows, url=table.url, policy=table.policy, limits=table.limits)
