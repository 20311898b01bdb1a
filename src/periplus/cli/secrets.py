"""Remove secrets from all text that is printed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from periplus.errors import redact

_URL = re.compile(r"\b[a-zA-Z][a-zA-Z0-9+.-]*://[^\s'\"<>)\]}]+")
_SHORT = 4
"""Values this short (`true`, `1`) are not secrets; replacing them would garble the message."""


def scrub(text: str, arguments: Sequence[str] = ()) -> str:
    """The text with URLs redacted and without the values of storage options."""
    for secret in sorted(option_values(arguments), key=len, reverse=True):
        text = text.replace(secret, "REDACTED")
    return _URL.sub(lambda match: redact(match.group()), text)


def option_values(arguments: Sequence[str]) -> set[str]:
    """The values of `--storage-option key=value` on a command line."""
    values = set()
    for before, argument in zip(("", *arguments), arguments, strict=False):
        pair = argument.removeprefix("--storage-option=") if argument.startswith("--storage-option=") else argument
        if before == "--storage-option" or pair is not argument:
            values.add(pair.partition("=")[2])
    return {value for value in values if len(value) > _SHORT}
