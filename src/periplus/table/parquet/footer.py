"""The column chunks a Parquet footer lists, and their pages, read without Arrow: offset, size, minimum and maximum.

pyarrow's own view of them (`row_group(i).column(j)`) ends the process where a footer contradicts itself: its C++ throws
and nothing on the way to Python catches. Its reading of row groups is guarded, so only this listing is done here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from periplus.errors import FormatError, LimitError

TRUE, FALSE, BYTE, I32, I64, DOUBLE, BINARY, LIST, SET, STRUCT = 1, 2, 3, 5, 6, 7, 8, 9, 10, 12
"""Kinds of values in Thrift's compact protocol; 4 to 6 are numbers of variable length."""
ROW_GROUPS, COLUMNS = 4, 1
"""Fields of the footer and of a row group."""
Way = tuple[int, ...]
PATH: Way = (3, 3)
WANTED: dict[Way, tuple[str, int]] = {
    (3, 6): ("uncompressed", I64), (3, 7): ("compressed", I64), (3, 9): ("data", I64), (3, 11): ("dictionary", I64),
    (3, 12, 3): ("nulls", I64), (3, 12, 5): ("high", BINARY), (3, 12, 6): ("low", BINARY),
}  # fmt: skip
"""Fields of a column chunk by the way to them, with their kinds."""
ENCRYPTED: frozenset[Way] = frozenset({(8,), (9,)})
EXACT: frozenset[Way] = frozenset({(3, 12, 7), (3, 12, 8)})
"""Where these are there and false, the least or most value is only a bound."""
VARINT = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
DEPTH, MOST_TOKENS, MOST_VALUES = 8, 2_000, 2_000_000
LEARNED = 16
"""Forms remembered for one column: where its chunks differ in form all the time, learning costs more than it saves."""


@dataclass(frozen=True, slots=True)
class ColumnChunk:
    """One column chunk as declared in the footer, not yet checked."""

    path: str
    start: int
    compressed: int
    uncompressed: int
    low: bytes | None
    high: bytes | None
    """Least and most value as stored; None where they are not known."""
    nulls: int | None


@dataclass(frozen=True, slots=True)
class _ColumnForm:
    """The common bytes of column chunks that differ only in numbers."""

    path: str
    names: tuple[str, ...]
    exact: bool
    pattern: re.Pattern[bytes] | None = None


class Footer:
    """The column chunks of every row group."""

    def __init__(self, data: bytes, columns: int) -> None:
        """FormatError where the bytes are no footer, or a row group has another number of columns."""
        self._groups: list[list[tuple[_ColumnForm, tuple[bytes, ...]]]] = []
        walk, known, rest = (
            ThriftReader(data),
            [_Known(ThriftReader.column) for _ in range(columns)],
            _Known(ThriftReader.rest),
        )
        try:
            for field, kind in walk.fields():
                if field != ROW_GROUPS:
                    walk.skip(kind)
                    continue
                for _ in range(walk.structures(kind)):
                    self._groups.append(_group(walk, known, rest))
        except (IndexError, UnicodeDecodeError):
            raise FormatError("the Parquet footer is cut off") from None

    def __len__(self) -> int:
        return len(self._groups)

    def chunk(self, group: int, column: int) -> ColumnChunk:
        """The chunk of a column in a row group."""
        form, values = self._groups[group][column]
        found = dict(zip(form.names, values, strict=True))
        start, dictionary = _number(found.get("data")), _number(found.get("dictionary"))
        return ColumnChunk(
            path=form.path,
            start=min(start, dictionary) if dictionary > 0 else start,
            compressed=_number(found.get("compressed")),
            uncompressed=_number(found.get("uncompressed")),
            low=found.get("low") if form.exact else None,
            high=found.get("high") if form.exact else None,
            nulls=_number(found["nulls"]) if "nulls" in found else None,
        )


def _group(walk: ThriftReader, known: list[_Known], rest: _Known) -> list[tuple[_ColumnForm, tuple[bytes, ...]]]:
    for field, kind in walk.fields():
        if field != COLUMNS:
            walk.skip(kind)
            continue
        if walk.structures(kind) != len(known):
            raise FormatError("a row group of the Parquet footer has more or fewer columns than its schema")
        chunks = [column.read(walk) for column in known]
        rest.read(walk)
        return chunks
    raise FormatError("a row group of the Parquet footer has no columns")


class _Known:
    """The forms that chunks of one column have had: most look like the one before, taken in by a single match."""

    def __init__(self, slowly: Callable[[ThriftReader, bool], tuple[_ColumnForm, tuple[bytes, ...]]]) -> None:
        self._slowly = slowly
        self._forms: list[_ColumnForm] = []
        self._read = 0

    def read(self, walk: ThriftReader) -> tuple[_ColumnForm, tuple[bytes, ...]]:
        for place, form in enumerate(self._forms):
            found = form.pattern.match(walk.data, walk.at) if form.pattern is not None else None
            if found is not None:
                walk.at = found.end()
                if place:
                    self._forms.insert(0, self._forms.pop(place))
                return form, found.groups()
        self._read += 1
        form, values = self._slowly(walk, 1 < self._read <= LEARNED + 1)
        if form.pattern is not None:
            self._forms.insert(0, form)
        return form, values


class ThriftReader:
    """Reads Thrift's compact protocol; IndexError past the end."""

    def __init__(self, data: bytes | memoryview) -> None:
        self.data = data
        self.at = 0
        self._values = 0
        self._begin()

    def _begin(self) -> None:
        self._tokens: list[bytes] = []
        self._path: list[str] = []
        self._found: dict[str, bytes] = {}
        self._exact = True

    def column(self, learn: bool) -> tuple[_ColumnForm, tuple[bytes, ...]]:
        """The column chunk here, value by value; with `learn`, the pattern of others that look the same."""
        self._begin()
        self._value(STRUCT, ())
        return self._formed(learn)

    def rest(self, learn: bool) -> tuple[_ColumnForm, tuple[bytes, ...]]:
        """What is left of the structure whose fields are being read; all of it is skipped."""
        self._begin()
        for _, kind in self._kept_fields(quiet=False):
            self._value(kind, (0,))
        return self._formed(learn)

    def _formed(self, learn: bool) -> tuple[_ColumnForm, tuple[bytes, ...]]:
        pattern = re.compile(b"".join(self._tokens), re.DOTALL) if learn else None
        return _ColumnForm(".".join(self._path), tuple(self._found), self._exact, pattern), tuple(self._found.values())

    def skip(self, kind: int) -> None:
        """Skip a value."""
        self._value(kind, (0,), quiet=True)

    def fields(self) -> Iterator[tuple[int, int]]:
        """(number, kind) of every field of a structure; whoever asks passes over the value before the next."""
        field = 0
        while (head := self._byte()) != 0:
            field = field + (head >> 4) if head >> 4 else signed(self.varint())
            yield field, head & 15

    def structures(self, kind: int) -> int:
        """The length of a list of structures that begins here."""
        head = self._byte()
        if kind != LIST or head & 15 != STRUCT:
            raise FormatError("the Parquet footer has something else where its row groups or columns should be")
        return self.varint() if head >> 4 == 15 else head >> 4

    def _value(self, kind: int, way: Way, *, quiet: bool = False) -> None:
        """Read a value; unless `quiet`, keep what is wanted of it and how it looked."""
        self._values += 1
        if len(way) > DEPTH or len(self._tokens) > MOST_TOKENS or self._values > MOST_VALUES:
            raise LimitError("the Parquet footer is nested too deeply, or has too many members")
        start = self.at
        if kind in (TRUE, FALSE):
            if way in EXACT and kind == FALSE:
                self._exact = False
        elif kind == STRUCT:
            for field, inner in self._kept_fields(quiet):
                if (*way, field) in ENCRYPTED and not quiet:
                    raise FormatError("the columns of this Parquet file are encrypted")
                self._value(inner, (*way, field), quiet=quiet)
        elif kind in (LIST, SET):
            head = self._byte()
            count = self.varint() if head >> 4 == 15 else head >> 4
            self._keep(start, quiet)
            for _ in range(count):
                # In a list, unlike in a structure, truth takes a byte.
                self._value(BYTE if head & 15 in (TRUE, FALSE) else head & 15, (*way, 0), quiet=quiet)
        elif BYTE < kind <= I64:
            self.varint()
            if not quiet:
                self._token(way, kind, start, VARINT)
        elif kind == BINARY:
            length = self.varint()
            self._keep(start, quiet)
            start = self.at
            self._pass(length)
            if way[:2] == PATH and not quiet:
                self._path.append(bytes(self.data[start : self.at]).decode())
                self._keep(start, quiet)
            elif not quiet:
                self._token(way, kind, start, b".{%d}" % length)
        elif kind in (BYTE, DOUBLE):
            self._pass(1 if kind == BYTE else 8)
            if not quiet:
                self._tokens.append(b"." if kind == BYTE else b".{8}")
        else:
            raise FormatError("the Parquet footer holds a value of no kind that Parquet has")

    def _kept_fields(self, quiet: bool) -> Iterator[tuple[int, int]]:
        start = self.at
        for field in self.fields():
            self._keep(start, quiet)
            yield field
            start = self.at
        self._keep(start, quiet)

    def _keep(self, start: int, quiet: bool) -> None:
        """What lies between `start` and here looks the same in every chunk of this form."""
        if not quiet:
            self._tokens.append(re.escape(bytes(self.data[start : self.at])))

    def _token(self, way: Way, kind: int, start: int, pattern: bytes) -> None:
        name, expected = WANTED.get(way, ("", 0))
        if kind != expected:
            self._tokens.append(pattern)
            return
        if name in self._found:
            raise FormatError("a column chunk of the Parquet footer has a field twice")
        self._tokens.append(b"(" + pattern + b")")
        self._found[name] = bytes(self.data[start : self.at])

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _pass(self, length: int) -> None:
        self.at += length
        if self.at > len(self.data):
            raise IndexError

    def varint(self) -> int:
        """The number of variable length here, as it is stored."""
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise FormatError("the Parquet footer holds a number of more than 64 bits")


def signed(value: int) -> int:
    """Thrift's zigzag: 0, -1, 1, -2, …"""
    return value >> 1 ^ -(value & 1)


def _number(varint: bytes | None) -> int:
    """A signed number; -1 where there is none."""
    if varint is None:
        return -1
    value = 0
    for place, byte in enumerate(varint):
        value |= (byte & 0x7F) << 7 * place
    return signed(value)


# --- pages ------------------------------------------------------------------------------------------------------------

DELTA_BYTE_ARRAY = 7
"""An encoding in which a value repeats the beginning of the one before it: a page may hold far more than its size."""
UNCOMPRESSED, COMPRESSED, DATA, DATA_V2 = 2, 3, 5, 8
"""Fields of a page header."""
VALUES, ENCODING, ENCODING_V2 = 1, 2, 4
"""Fields of the header of a data page."""


class Pages(NamedTuple):
    """What the pages of a column chunk hold."""

    decompressed: int
    """Bytes of all pages."""
    expanded: int
    """Bytes that values may take where their encoding repeats the value before; 0 for other encodings."""


def pages(data: bytes | memoryview) -> Pages:
    """Sum up the page headers of a column chunk; FormatError where they are damaged."""
    walk = ThriftReader(data)
    decompressed = expanded = 0
    try:
        while walk.at < len(walk.data):
            size = stored = -1
            values = encoding = 0
            for field, kind in walk.fields():
                if field in (UNCOMPRESSED, COMPRESSED) and kind == I32:
                    number = signed(walk.varint())
                    size, stored = (number, stored) if field == UNCOMPRESSED else (size, number)
                elif field in (DATA, DATA_V2) and kind == STRUCT:
                    values, encoding = _data_page(walk, ENCODING if field == DATA else ENCODING_V2)
                else:
                    walk.skip(kind)
            if size < 0 or stored < 0 or walk.at + stored > len(walk.data):
                raise FormatError("a page of the Parquet file is outside its column chunk")
            walk.at += stored
            decompressed += size
            expanded += values * size if encoding == DELTA_BYTE_ARRAY else 0
    except IndexError:
        raise FormatError("a page header of the Parquet file is cut off") from None
    return Pages(decompressed, expanded)


def _data_page(walk: ThriftReader, place: int) -> tuple[int, int]:
    values = encoding = 0
    for field, kind in walk.fields():
        if field in (VALUES, place) and kind == I32:
            number = signed(walk.varint())
            values, encoding = (number, encoding) if field == VALUES else (values, number)
        else:
            walk.skip(kind)
    return max(values, 0), encoding
