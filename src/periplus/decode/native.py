"""Native: the one door to imagecodecs, opened when a pipeline that needs it is prepared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from periplus.errors import FormatError


def native(function: str) -> Callable[..., Any]:
    """A function of imagecodecs, or FormatError where this build of it lacks the codec."""
    import imagecodecs

    codec = function.rpartition("_")[0].upper()
    if not getattr(getattr(imagecodecs, codec, None), "available", False):
        raise FormatError(f"the installed imagecodecs was built without {codec}")
    found: Callable[..., Any] = getattr(imagecodecs, function)
    return found
