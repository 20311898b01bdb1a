"""Column roles: which column of a table plays which part, so that tables of other tools can be read too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from periplus.errors import FormatError
from periplus.model import Array
from periplus.parse.json import check_object, check_text

REQUIRED = ("offset", "length")
OPTIONAL = ("array", "level", "part", "path", "file_id", "data", "encoding", "crc32c", "present")


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The name of the column in each role; None where a table has no such column."""

    chunk: Mapping[str, str] = field(default_factory=dict)
    """Column of chunk positions by dimension."""
    offset: str = "offset"
    length: str = "length"
    array: str | None = "array"
    level: str | None = "level"
    part: str | None = "part"
    path: str | None = "path"
    file_id: str | None = "file_id"
    data: str | None = "data"
    encoding: str | None = "encoding"
    crc32c: str | None = "crc32c"
    present: str | None = None
    """Boolean; a row where it is false is as good as absent (the form of `gdal mdim get-refs`)."""

    def within(self, names: Iterable[str]) -> Columns:
        """The roles that a table with these column names fills; offset and length must be among them."""
        known = set(names)
        for name in (self.offset, self.length):
            if name not in known:
                raise FormatError(f"the table has no column {name!r}")
        chunk = {dim: name for dim, name in self.chunk.items() if name in known}
        absent = {role: None for role in OPTIONAL if getattr(self, role) not in known}
        return replace(self, chunk=chunk, **absent)  # type: ignore[arg-type]


def columns_for(arrays: Iterable[Array], before: Columns | None = None) -> Columns:
    """The names we write: `<dim>_chunk`, made unique if two differ only in case (DuckDB ignores case).

    Names given `before` stay, and only those of new dimensions are added.
    """
    chunk = {} if before is None else dict(before.chunk)
    taken = {name.lower() for name in chunk.values()}
    for dim in dict.fromkeys(dim for array in arrays for dim in array.dims if dim not in chunk):
        name, count = f"{dim}_chunk", 1
        while name.lower() in taken:
            count += 1
            name = f"{dim}_chunk_{count}"
        taken.add(name.lower())
        chunk[dim] = name
    return Columns(chunk=chunk) if before is None else replace(before, chunk=chunk)


def write_columns(columns: Columns) -> dict[str, Any]:
    """The roles as JSON; an optional one that has its own name is left out, for that is what absence means."""
    answer: dict[str, Any] = {"chunk": dict(columns.chunk), "offset": columns.offset, "length": columns.length}
    for item in fields(columns):
        name = getattr(columns, item.name)
        if item.name in OPTIONAL and name != item.default:
            answer[item.name] = name
    return answer


def read_columns(value: Any, arrays: Iterable[Array]) -> Columns:
    """Declared roles, with the default name for every role that is not declared."""
    given = check_object(value, "columns")
    unknown = set(given) - {item.name for item in fields(Columns)}
    if unknown:
        raise FormatError(f"columns: unknown role {sorted(unknown)[0]!r}")
    chunk = {
        check_text(dim, "columns: chunk"): check_text(name, "columns: chunk")
        for dim, name in check_object(given.pop("chunk", {}), "columns: chunk").items()
    }
    names: dict[str, str | None] = {}
    for role, name in given.items():
        if name is None and role in REQUIRED:
            raise FormatError(f"columns: the role {role!r} cannot be empty")
        names[role] = None if name is None else check_text(name, f"columns: {role}")
    dims = dict.fromkeys(dim for array in arrays for dim in array.dims)
    chunk = {dim: chunk.get(dim, f"{dim}_chunk") for dim in dims}
    used = [*chunk.values(), *(name for name in names.values() if name is not None)]
    if len(set(used)) != len(used):
        raise FormatError("columns: one column has two roles")
    return Columns(chunk=chunk, **names)  # type: ignore[arg-type]
