"""JSON from outside: the one parser of documents, which refuses bad text and nesting that later code could not walk."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
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
        value = json.loads(text, parse_constant=refuse)
        if SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()  # a pair is a character, a single one is none
    except RecursionError:
        raise _too_deep(what, url) from None
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


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")
