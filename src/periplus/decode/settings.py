"""Settings: values of a codec's configuration, each checked as it is taken."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Set
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError
from periplus.model import Shape

Extent: TypeAlias = tuple[Shape, np.dtype[Any]]
"""Shape of a full chunk, and the type of its values."""
Run: TypeAlias = Callable[..., NDArray[Any]]
"""(bytes, part of the chunk inside the array, if a codec is `partial` also what is wanted of it) -> values."""


def number(
    codec: str, configuration: Mapping[str, Any], key: str, low: int, high: int, default: int | None = None
) -> int:
    """An integer in low..high-1."""
    value = configuration.get(key)
    if value is None:
        value = default
    if value is None:
        raise FormatError(f"{codec} codec: {key} is missing")
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value < high:
        raise FormatError(f"{codec} codec: {key} is {value!r}, no whole number from {low} to {high - 1}")
    return value


def encoded(codec: str, configuration: Mapping[str, Any], key: str) -> bytes | None:
    """The bytes of a base64 text; None if the configuration has none."""
    text = configuration.get(key)
    if text is None:
        return None
    try:
        return base64.b64decode(text.removeprefix("base64:"), validate=True)
    except (ValueError, AttributeError):
        raise FormatError(f"{codec} codec: {key} is not base64 text") from None


def known(codec: str, configuration: Mapping[str, Any], keys: Set[str]) -> None:
    """FormatError where a configuration has a key that means nothing to us: it may change what the bytes mean."""
    for key in configuration:
        if key not in keys:
            raise FormatError(f"the {codec} codec has no setting {key!r}")


def kind(codec: str, configuration: Mapping[str, Any], kinds: str) -> np.dtype[Any]:
    """The type that the key `dtype` names, of one of these kinds of numbers, native."""
    name = configuration.get("dtype")
    try:
        dtype: np.dtype[Any] = np.dtype(name if isinstance(name, str) else "V")
    except (TypeError, ValueError):
        raise FormatError(f"codec {codec}: dtype is {name!r}") from None
    if dtype.kind not in kinds:
        raise FormatError(f"codec {codec}: dtype is {name!r}, which it does not yield")
    native: np.dtype[Any] = dtype.newbyteorder("=")
    return native


def choice(codec: str, configuration: Mapping[str, Any], key: str, names: tuple[str, ...]) -> str:
    """One of some words; the first if the configuration has none."""
    value = configuration.get(key, names[0])
    if value not in names:
        raise FormatError(f"{codec} codec: {key} is {value!r}, none of {', '.join(names)}")
    return str(value)
