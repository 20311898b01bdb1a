"""JSON from outside: the one parser of documents, which refuses bad text and nesting that later code could not walk."""

from __future__ import annotations

import json
import re
from itertools import chain
from typing import Any

from periplus.errors import FormatError
from periplus.limits import Limits

MOST_DEPTH = 100
"""Objects and lists inside one another. Metadata has a dozen. Functions that walk, copy or write a document call
themselves up to three times per level, and Python stops at 1,000 calls, those of the application included."""
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
CONTAINERS = (dict, list)


def parse_json(
    data: bytes | str, *, what: str, url: str | None = None, limits: Limits | None = None, constants: bool = True
) -> Any:
    """The value of a JSON text; FormatError or LimitError where it is not JSON, too large, or nested too deeply.

    `what` names the document in errors. With `limits` the text may have `header_bytes` at most. The numbers NaN and
    Infinity, which are not JSON but are common in Zarr attributes, are accepted unless `constants` is False.
    """
    if limits is not None:
        limits.check(f"the size of {what}", len(data), limits.header_bytes, url=url)
    refuse = None if constants else _refuse
    try:
        text = data.decode("utf-8-sig") if isinstance(data, bytes) else data
        value = json.loads(text, parse_constant=refuse)
        if SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()  # a pair is a character, a single one is none
    except RecursionError:
        raise _too_deep(what, url) from None
    except UnicodeEncodeError:
        raise FormatError(f"a text of {what} holds half a character", url=url) from None
    except ValueError as error:  # also bad UTF-8 and integers of absurd length
        raise FormatError(f"{what} is not JSON: {error}", url=url) from None
    if too_deep(value):
        raise _too_deep(what, url)
    return value


def too_deep(value: Any, most: int = MOST_DEPTH) -> bool:
    """Whether lists and objects are nested more than `most` levels deep; level by level, without recursion."""
    level = [value] if isinstance(value, CONTAINERS) else []
    for _ in range(most):
        if not level:
            return False
        items = chain.from_iterable(one.values() if type(one) is dict else one for one in level)
        level = [item for item in items if type(item) in CONTAINERS]
    return bool(level)


def _too_deep(what: str, url: str | None) -> FormatError:
    return FormatError(f"{what} is nested too deeply: more than {MOST_DEPTH} levels", url=url)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")
