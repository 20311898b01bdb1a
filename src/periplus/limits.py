"""The budgets: how much a file, an index or a read may ask for before it is refused."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any

from periplus.errors import LimitError

MIB = 1 << 20
GIB = 1 << 30


def out_of_memory(what: str, *, url: str | None = None, offset: int | None = None) -> LimitError:
    """The LimitError for a MemoryError; `what` names what did not fit into memory."""
    advice = "read less at a time, or lower memory_bytes in periplus.Limits"
    return LimitError(f"not enough memory for {what}; {advice}", url=url, offset=offset)


@contextmanager
def enough_memory(what: str, *, url: str | None = None) -> Iterator[None]:
    """LimitError in place of MemoryError."""
    try:
        yield
    except MemoryError as error:
        raise out_of_memory(what, url=url) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Absolute sizes only; a declared size is compared with these before anything is allocated for it."""

    header_bytes: int = 64 * MIB
    """Bytes a scanner may ask of one file and its sidecars."""
    listed: int = 1 << 20
    """Objects in the listings that the scan of one file asks for."""
    coordinate_bytes: int = 64 * MIB
    """Bytes of one array, decoded or stored, whose values are read while indexing."""
    file_coordinate_bytes: int = 256 * MIB
    """Bytes of all arrays of one file that are read while indexing."""
    images: int = 65_536
    """Directories or images in one file."""
    tags: int = 4_096
    """Entries in one directory."""
    chunks: int = 1 << 26
    """Chunks in one array of one file."""
    dims: int = 8
    """Dimensions of an array."""
    chunk_bytes: int = GIB
    """Decoded bytes of one chunk."""
    read_bytes: int = 16 * GIB
    """Bytes of the array one read may return."""
    memory_bytes: int = GIB
    """Bytes in flight during one read: fetched but not yet decoded, and scratch."""
    index_rows: int = 1 << 33
    """Rows of one index, whatever its arrays declare."""

    sql_memory_bytes: int = GIB
    """Memory that DuckDB may use for one query; nothing is spilled to disk."""
    sql_result_bytes: int = GIB // 2
    """Bytes of the answer to one query."""
    sql_seconds: float = 600
    """Seconds that one query may take."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value: Any = getattr(self, field.name)
            number: Any = Real if field.name == "sql_seconds" else Integral
            if not isinstance(value, number) or isinstance(value, bool):
                kind = "a number" if number is Real else "a whole number"
                raise TypeError(f"{field.name} of Limits is {kind}, not {value!r}")
            if not 0 <= value < math.inf:
                raise ValueError(f"{field.name} of Limits is not negative and finite, but here {value!r}")

    def check(self, what: str, value: int, limit: int, *, url: str | None = None, offset: int | None = None) -> int:
        """`value`, or LimitError where it exceeds `limit`."""
        if value > limit:
            raise LimitError(f"{what} is {value}, over the limit of {limit}", url=url, offset=offset)
        return value


def given_limits(limits: Limits | None) -> Limits:
    """The limits that a user passes, or the defaults; TypeError for anything else."""
    if limits is not None and not isinstance(limits, Limits):
        raise TypeError(
            f"limits is periplus.Limits(...), for example periplus.Limits(read_bytes=1 << 30), not {limits!r}"
        )
    return limits or Limits()


class Allowance:
    """A running total that must not pass a limit; `advice` explains how to stay below it or raise it."""

    def __init__(self, what: str, most: int, *, advice: str, url: str | None = None) -> None:
        self.what, self.most, self.advice, self.url = what, most, advice, url
        self.spent = 0

    def take(self, amount: int) -> None:
        """Count `amount` before it is allocated; LimitError where the total passes the limit."""
        self.spent += amount
        if self.spent > self.most:
            raise LimitError(
                f"{self.what} would take {self.spent:,} bytes, over the limit of {self.most:,}; {self.advice}",
                url=self.url,
            )


JSON_TEXT, JSON_ESCAPED, JSON_WIDE = 2, 3, 8
"""Bytes of memory per byte of text: decoded and once more in the strings. These have two bytes for a character where
one of them is escaped; both have up to four where one is beyond those, or not ASCII in the text."""
JSON_COSTS = {"[": 88, "{": 232, '"': 32, ",": 40}
"""Bytes of memory per structural character, measured with CPython 3.11: a list of one item, a dict, half a string, an
item with its slot. Characters within strings count too, so the estimate errs on the high side."""
JSON_MOST = 240
"""No byte of JSON costs more."""
JSON_ADVICE = "pass limits=periplus.Limits(memory_bytes=...) to allow more"


def json_cost(data: bytes | str) -> int:
    """About how many bytes of memory a JSON text takes once it is parsed, counted without parsing it."""
    structure, width = json_parts(data)
    return structure + len(data) * width


def json_parts(data: bytes | str) -> tuple[int, int]:
    """Memory for the structure of a JSON text, and for each byte of it."""
    text = data if isinstance(data, str) else data.decode("latin-1")
    marks = {key: text.count(key) for key in JSON_COSTS}
    plain = text.replace("\\\\", "")  # an escaped backslash escapes nothing
    marks['"'] -= plain.count('\\"')  # inside strings, such as documents in a document
    width = JSON_ESCAPED if "\\u" in plain else JSON_TEXT
    if not text.isascii() or "\\ud" in plain or "\\uD" in plain:
        width = JSON_WIDE
    return sum(JSON_COSTS[key] * count for key, count in marks.items()), width


def json_allowance(limits: Limits, *, what: str, url: str | None = None) -> Allowance:
    """What JSON may take in memory: half of `memory_bytes`, since its content is copied into columns afterwards."""
    return Allowance(f"{what}, parsed as JSON,", limits.memory_bytes // 2, advice=JSON_ADVICE, url=url)


def check_json_budget(data: bytes | str, limits: Limits, *, what: str, url: str | None = None) -> None:
    """LimitError where parsing a JSON text would take more memory than it may."""
    allowance = json_allowance(limits, what=what, url=url)
    if len(data) * JSON_MOST > allowance.most:  # small documents, which are many, need no count
        allowance.take(json_cost(data))
