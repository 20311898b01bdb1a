"""The `gen` of kerchunk references: keys and byte ranges by plain arithmetic over ranges, up to a limit."""

from __future__ import annotations

import ast
import itertools
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from periplus.errors import FormatError, LimitError
from periplus.limits import Allowance

MOST = 1 << 20
"""References that `gen` may make in all: what is more belongs in Parquet."""
MOST_AXES = 32
"""Dimensions of one `gen`."""
DIGITS = 20
"""Characters of the largest number that an expression may yield."""
PLACE = re.compile(r"\{\{([^{}]*)\}\}")
OPERATORS: dict[type[ast.AST], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
LARGEST = 1 << 64
LONGEST = 200
"""Characters of an expression."""


def generated(gens: Any, fill: Callable[[str, str], str], text: Allowance) -> Iterator[tuple[str, list[Any]]]:
    """(key, reference) of every combination, counted before the first is made, as is their text."""
    if not isinstance(gens, Sequence) or not all(isinstance(one, Mapping) for one in gens):
        raise FormatError("gen must be a list of objects")
    axes = [_axes(one) for one in gens]
    counts = [math.prod(len(values) for values in one.values()) for one in axes]
    if sum(counts) > MOST:
        raise LimitError(f"gen would make {sum(counts)} references, over the limit of {MOST}")
    for one, count in zip(gens, counts, strict=True):
        text.take(count * _longest(one))
    for one, counted, count in zip(gens, axes, counts, strict=True):
        if not count:
            continue  # product() would list the values of the other dimensions
        for place in itertools.product(*counted.values()):
            yield _one(one, dict(zip(counted, place, strict=True)), fill)


def _longest(one: Mapping[str, Any]) -> int:
    """Bytes of memory that the text of one reference may take, before templates: an expression yields 20 digits."""
    texts = [value for name in ("key", "url", "offset", "length") if isinstance(value := one.get(name), str)]
    wide = 1 if all(value.isascii() for value in texts) else 4
    return wide * sum(len(value) + DIGITS * value.count("{{") for value in texts)


def _axes(one: Mapping[str, Any]) -> dict[str, Sequence[int]]:
    given = one.get("dimensions")
    if not isinstance(given, Mapping):
        raise FormatError("gen: dimensions are missing")
    if len(given) > MOST_AXES:
        raise LimitError(f"gen has {len(given)} dimensions, over the limit of {MOST_AXES}")
    axes: dict[str, Sequence[int]] = {}
    for name, values in given.items():
        if isinstance(values, Mapping):
            numbers = [values.get("start", 0), values.get("stop"), values.get("step", 1)]
            if not all(type(n) is int and abs(n) < 1 << 62 for n in numbers) or numbers[2] == 0:
                raise FormatError(f"gen: dimension {name!r} is not a range of integers")
            axes[name] = range(*numbers)
        elif isinstance(values, list) and all(type(n) is int for n in values):
            axes[name] = values
        else:
            raise FormatError(f"gen: dimension {name!r} is neither a range nor a list of integers")
    return axes


def _one(one: Mapping[str, Any], place: Mapping[str, int], fill: Callable[[str, str], str]) -> tuple[str, list[Any]]:
    key = _text(one.get("key"), place, "gen: key")
    # Other names are templates of the index.
    url = fill(_text(one.get("url"), place, key), key)
    if "offset" not in one and "length" not in one:
        return key, [url]
    return key, [url, *(_whole(one.get(name), place, f"{key}: {name}") for name in ("offset", "length"))]


def _text(value: Any, place: Mapping[str, int], what: str) -> str:
    if not isinstance(value, str):
        raise FormatError(f"{what}: text is required")

    def counted(match: re.Match[str]) -> str:
        expression = match[1].strip()
        if expression.isidentifier() and expression not in place:
            return match[0]
        return str(calculate(expression, place, what))

    return PLACE.sub(counted, value)


def _whole(value: Any, place: Mapping[str, int], what: str) -> int:
    if type(value) is int:
        return value
    text = _text(value, place, what)
    try:
        return int(text)
    except ValueError:
        raise FormatError(f"{what} is {text[:60]!r}, not an integer") from None


def calculate(expression: str, place: Mapping[str, int], what: str) -> int:
    """The value of sums, products, floor quotients and remainders of integers and names."""
    if len(expression) > LONGEST:
        raise FormatError(f"{what}: the expression is too long")

    def value(node: ast.AST) -> int:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.Name) and node.id in place:
            return place[node.id]
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            left, right = value(node.left), value(node.right)
            found = OPERATORS[type(node.op)](left, right)
            if abs(found) < LARGEST:
                return found
        raise FormatError(f"{what}: the template {expression[:60]!r} is neither literal nor plain arithmetic")

    try:
        return value(_parsed(expression))
    except (SyntaxError, ZeroDivisionError, RecursionError, MemoryError):
        raise FormatError(f"{what}: the template {expression[:60]!r} is neither literal nor plain arithmetic") from None


@lru_cache(maxsize=64)
def _parsed(expression: str) -> ast.AST:
    return ast.parse(expression, mode="eval").body
