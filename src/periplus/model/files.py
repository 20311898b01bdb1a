"""The files of an index: one as a store describes it, all as the columns of a table."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from periplus.errors import guided
from periplus.redaction import redact

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One object in a store, as the response that read its header described it."""

    url: str
    size: int | None = None
    etag: str | None = None
    last_modified: datetime | None = None
    """Always aware, in UTC."""

    def __repr__(self) -> str:
        return f"<Source {redact(self.url)}: {self.size} bytes, {self.etag or self.last_modified}>"


class TypedColumns(Mapping[str, NDArray[Any]]):
    """Columns of a files table that have types of their own, which NumPy may lack."""

    nested: tuple[str, ...] = ()
    """Columns of lists and structures, which are not read."""

    @abstractmethod
    def taken(self, rows: NDArray[np.intp]) -> TypedColumns:
        """Those of some rows; missing where a row is -1."""

    @abstractmethod
    def joined(self, more: Mapping[str, NDArray[Any]], count: int) -> TypedColumns:
        """Those of these rows and `count` more."""

    @abstractmethod
    def with_column(self, name: str, values: NDArray[Any]) -> TypedColumns:
        """These and one more, in place of any of that name."""

    @abstractmethod
    def without(self, name: str) -> TypedColumns:
        """These without one."""


def instant(moment: datetime | None) -> np.datetime64:
    """datetime64[us] in UTC; NaT for None."""
    if moment is None:
        return np.datetime64("NaT", "us")
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return np.datetime64(moment, "us")


def instants(moments: Iterable[datetime | None]) -> NDArray[np.datetime64]:
    """A datetime64[us] column in UTC."""
    return np.array([instant(moment) for moment in moments], dtype="datetime64[us]")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Files:
    """The files table as columns; row number is the file id."""

    path: Sequence[str]
    """URL as harvested."""
    size: NDArray[np.int64]
    """Bytes; -1 unknown."""
    etag: Sequence[str | None]
    last_modified: NDArray[np.datetime64]
    """datetime64[us], UTC; NaT unknown."""
    datetime: NDArray[np.datetime64]
    """When the data were taken, datetime64[us], UTC; NaT unknown."""
    format: Sequence[str]
    status: Sequence[str]
    """`ok` or `error`."""
    error: Sequence[str | None]
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """Further columns, as long as the others: `group`, and those of users. Text is an object array; what is missing is
    None, NaN or NaT. In a collection `group` is the path of the group that a file is in: the empty string for a single
    file, whose arrays have plain names, and None for a file in no array."""

    def __len__(self) -> int:
        return len(self.path)

    def __repr__(self) -> str:
        failed = sum(status != "ok" for status in self.status)
        return f"<periplus files: {len(self):,}" + (f", {failed:,} of them in no array>" if failed else ">")

    @classmethod
    def of(
        cls,
        sources: Iterable[Source],
        *,
        format: str | Sequence[str] = "",
        datetime: NDArray[np.datetime64] | None = None,
        error: Sequence[str | None] | None = None,
    ) -> Files:
        """A table of sources in their order; one format may be that of all."""
        held = list(sources)
        errors = [None] * len(held) if error is None else error
        return cls(
            path=[source.url for source in held],
            size=np.array([-1 if source.size is None else source.size for source in held], np.int64),
            etag=[source.etag for source in held],
            last_modified=instants(source.last_modified for source in held),
            datetime=np.full(len(held), "NaT", "datetime64[us]") if datetime is None else datetime,
            format=[format] * len(held) if isinstance(format, str) else format,
            status=["ok" if one is None else "error" for one in errors],
            error=errors,
        )

    def take(self, rows: NDArray[np.intp]) -> Files:
        """Some of the files, in the order of `rows`."""
        numbers = rows.tolist()

        def taken(values: Any) -> Any:
            return values[rows] if isinstance(values, np.ndarray) else [values[row] for row in numbers]

        columns: Mapping[str, NDArray[Any]]
        if isinstance(self.columns, TypedColumns):
            columns = self.columns.taken(rows)
        else:
            columns = {name: values[rows] for name, values in self.columns.items()}
        return Files(columns=columns, **{name: taken(getattr(self, name)) for name in _FILE_COLUMNS})

    @classmethod
    def joined(cls, first: Files, then: Files) -> Files:
        """Two files tables as one; a column that one of them lacks is missing there."""

        def join(name: str) -> Any:
            pair = getattr(first, name), getattr(then, name)
            return np.concatenate(pair) if isinstance(pair[0], np.ndarray) else [*pair[0], *pair[1]]

        columns: Mapping[str, NDArray[Any]]
        if isinstance(first.columns, TypedColumns):
            columns = first.columns.joined(then.columns, len(then))
        else:
            columns = {
                name: _joined_columns(first.columns.get(name), len(first), then.columns.get(name), len(then))
                for name in {**first.columns, **then.columns}
            }
        return cls(columns=columns, **{name: join(name) for name in _FILE_COLUMNS})

    def to_pandas(self) -> pd.DataFrame:
        """The files as a DataFrame, indexed by file id; what is unknown is missing."""
        with guided():
            import pandas as pd

        size = pd.array(np.where(self.size < 0, 0, self.size), "Int64")
        size[self.size < 0] = pd.NA
        columns = {name: getattr(self, name) for name in _FILE_COLUMNS} | {"size": size}
        columns |= {name: np.asarray(values) for name, values in self.columns.items()}
        return pd.DataFrame(columns, index=pd.RangeIndex(len(self), name="file_id"))

    def source(self, file: int) -> Source:
        modified = self.last_modified[file]
        return Source(
            url=self.path[file],
            size=None if self.size[file] < 0 else int(self.size[file]),
            etag=self.etag[file],
            last_modified=None
            if np.isnat(modified)
            else datetime.fromisoformat(np.datetime_as_string(modified, unit="us") + "+00:00"),
        )


_FILE_COLUMNS = ("path", "size", "etag", "last_modified", "datetime", "format", "status", "error")


def _joined_columns(first: Any, count: int, then: Any, more: int) -> NDArray[Any]:
    def missing(values: NDArray[Any], size: int) -> NDArray[Any]:
        if values.dtype.kind in "fM":
            return np.full(size, "NaT" if values.dtype.kind == "M" else np.nan, values.dtype)
        return np.full(size, None, object)

    pair = (missing(then, count) if first is None else first, missing(first, more) if then is None else then)
    if pair[0].dtype.kind != pair[1].dtype.kind:
        pair = pair[0].astype(object), pair[1].astype(object)
    return np.concatenate(pair)
