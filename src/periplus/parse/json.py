"""Untrusted JSON: the one parser of documents, and checks of single values.

The parser refuses malformed text, objects with two values for one name, and nesting that later code could not walk.
Each check returns what it checked.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

from periplus.errors import FormatError
from periplus.limits import Limits, check_json_budget

MOST_DEPTH = 100
"""Objects and lists inside one another. Metadata has a dozen. Functions that walk, copy or write a document call
themselves up to three times per level, and Python stops at 1,000 calls, those of the application included."""
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
CONTAINERS = (dict, list)
INT64 = (1 << 63) - 1


def parse_json(
    data: bytes | str, *, what: str, url: str | None = None, limits: Limits | None = None, constants: bool = True
) -> Any:
    """The value of a JSON text; FormatError or LimitError where it is not JSON, too large, or nested too deeply.

    `what` names the document in errors. The numbers NaN and Infinity, which are not JSON but are common in Zarr
    attributes, are accepted unless `constants` is False.
    """
    check_json_budget(data, limits or Limits(), what=what, url=url)
    refuse = None if constants else _refuse
    try:
        text = data.decode("utf-8-sig") if isinstance(data, bytes) else data
        value = json.loads(text, parse_constant=refuse, object_pairs_hook=_object)
        if SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()  # a pair is a character, a single one is none
    except RecursionError:
        raise _too_deep(what, url) from None
    except KeyError as error:
        name = abbreviated(error.args[0])
        raise FormatError(f"{what} has the name {name} twice in one object, with two values", url=url) from None
    except UnicodeEncodeError:
        raise FormatError(f"a name or text of {what} holds half a character", url=url) from None
    except ValueError as error:  # also bad UTF-8 and integers of absurd length
        raise FormatError(f"{what} is not JSON: {error}", url=url) from None
    check_depth(value, what=what, url=url)
    return value


def check_depth(value: Any, *, what: str, url: str | None = None) -> None:
    """FormatError where lists and objects are nested too deeply: counted level by level, without recursion."""
    level = [value] if type(value) in CONTAINERS else []
    for _ in range(MOST_DEPTH):
        if not level:
            return
        items = chain.from_iterable(one.values() if type(one) is dict else one for one in level)
        level = [item for item in items if type(item) in CONTAINERS]
    if level:
        raise _too_deep(what, url)


@contextmanager
def walking(what: str) -> Iterator[None]:
    """FormatError for a RecursionError: around libraries that parse or walk documents themselves."""
    try:
        yield
    except RecursionError:
        raise FormatError(f"{what} is nested too deeply") from None


def _too_deep(what: str, url: str | None) -> FormatError:
    return FormatError(f"{what} is nested too deeply: more than {MOST_DEPTH} levels", url=url)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names are unique: of two values readers take either, so that one of them is silently lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        (most, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise KeyError(most)
    return found


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


# --- checks of values -----------------------------------------------------------------------------------------------


def check_integer(value: Any, what: str, *, least: int = 0, most: int = INT64) -> int:
    """An integer in a range; FormatError names it by `what`."""
    if type(value) is not int:
        raise FormatError(f"{what} must be an integer, not {abbreviated(value)}")
    if not least <= value <= most:
        raise FormatError(f"{what} is {abbreviated(value)}, outside {least}..{most}")
    return value


def check_number(value: Any, what: str) -> float:
    """A finite number."""
    if type(value) not in (int, float):
        raise FormatError(f"{what} must be a number, not {abbreviated(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise FormatError(f"{what} is not a finite number")
    return number


def check_text(value: Any, what: str) -> str:
    """A string without control characters or lone surrogates."""
    if type(value) is not str:
        raise FormatError(f"{what} must be a string, not {abbreviated(value)}")
    if not value.isprintable() and any(ord(c) < 32 or ord(c) == 127 or 0xD800 <= ord(c) < 0xE000 for c in value):
        raise FormatError(f"{what} holds control characters: {abbreviated(value)}")
    return value


def check_list(value: Any, what: str, each: Callable[[Any, str], Any], *, size: int | None = None) -> tuple[Any, ...]:
    """A list, all of whose items pass the check `each`."""
    if type(value) is not list:
        raise FormatError(f"{what} must be a list, not {abbreviated(value)}")
    if size is not None and len(value) != size:
        raise FormatError(f"{what} has {len(value)} items where {size} are needed")
    return tuple(each(item, what) for item in value)


def check_object(value: Any, what: str) -> dict[str, Any]:
    """A JSON object."""
    if not isinstance(value, Mapping) or not all(type(key) is str for key in value):
        raise FormatError(f"{what} must be an object, not {abbreviated(value)}")
    return dict(value)


def abbreviated(value: Any) -> str:
    """A value as an error message quotes it: at most 60 characters."""
    shown = repr(value) if not isinstance(value, list | dict) else type(value).__name__
    return shown if len(shown) <= 60 else shown[:57] + "..."
