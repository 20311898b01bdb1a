"""Kerchunk references: their four forms, literal templates, and a bounded `gen`; no expression is evaluated as code."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from periplus.errors import FormatError, LimitError
from periplus.limits import Allowance, Limits
from periplus.parse.json import parse_json
from periplus.parse.zarr.documents import NAMES
from periplus.zarr.kerchunk.generate import generated

Reference: TypeAlias = bytes | list[Any]
"""Inline bytes, [url], [url, offset, length] or [url, [[offset, length], ...]]."""

INT64 = (1 << 63) - 1
MOST_PARTS = 1 << 16
"""Byte ranges of one chunk: what the table's `part` can count."""
PLACEHOLDER = re.compile(r"\{\{([A-Za-z_][A-Za-z0-9_]*)\}\}")
CODE = re.compile(r"\{\{|\}\}|\{%|\{#")
BASE64 = "base64:"
TEXT_SHARE = 8
"""Which part of `memory_bytes` the filled-in text may take: the URLs are copied when they become absolute."""
LONGEST_URL = 1 << 16
"""Characters of a URL after its templates are filled in."""


def is_json(url: str) -> bool:
    """Whether a URL is that of a JSON file, by its name."""
    return url.partition("?")[0].lower().endswith(".json")


def parse(text: bytes | str, *, url: str | None = None, limits: Limits | None = None) -> dict[str, Any]:
    """The JSON text of an index; FormatError where it is none, LimitError where it would fill the memory."""
    value = parse_json(text, what="the index", url=url, limits=limits)
    if not isinstance(value, dict):
        raise FormatError("the index is not a JSON object", url=url)
    return value


def expand(
    document: Mapping[str, Any], *, overrides: Mapping[str, str] | None = None, limits: Limits | None = None
) -> dict[str, Reference]:
    """Every reference of an index by its key, checked, with templates filled in; FormatError names the key."""
    version = document.get("version")
    text = Allowance(
        "the text of templates and gen, filled in,",
        (limits or Limits()).memory_bytes // TEXT_SHARE,
        advice="write the index as Parquet, or pass limits=periplus.Limits(memory_bytes=...) to allow more",
    )
    if version is None or not isinstance(version, int | float):
        refs, fill = document, filler({}, overrides, text)
    elif version == 1:
        refs, fill = document.get("refs", {}), filler(document.get("templates"), overrides, text)
    else:
        raise FormatError(f"version {version!r} of kerchunk references is unsupported; 0 and 1 are supported")
    if not isinstance(refs, Mapping):
        raise FormatError("the references are not a JSON object")
    if refs is document and refs and not any(str(key).rpartition("/")[2] in NAMES for key in refs):
        raise FormatError("this JSON has no kerchunk references: no key is that of a Zarr metadata document")
    found: dict[str, Reference] = {}
    for key, value in refs.items():
        # Most references have this form; checking it here takes a third of the time.
        if type(value) is list and len(value) == 3:
            url, offset, length = value
            whole = type(offset) is int and type(length) is int and length >= 0
            if whole and type(url) is str and url and 0 <= offset <= INT64 - length:
                target = fill(url, key)
                found[key] = value if target is url else [target, offset, length]
                continue
        found[key] = checked(key, value, fill)
    if version == 1 and document.get("gen"):
        for key, value in generated(document["gen"], fill, text):
            reference = checked(key, value, fill)
            if found.setdefault(key, reference) != reference:
                raise FormatError(f"{key}: gen and refs have different references for this key")
    return found


def filler(
    templates: Any, overrides: Mapping[str, str] | None, text: Allowance | None = None
) -> Callable[[str, str], str]:
    """A function that fills the literal templates of a URL; its second argument is the key, for errors.

    The length of a filled URL is checked, and counted in `text`, before the URL is made.
    """
    known = {} if templates is None else templates
    if not isinstance(known, Mapping):
        raise FormatError("the templates are not a JSON object")
    known = {**known, **(overrides or {})}
    for name, value in known.items():
        if not isinstance(value, str) or CODE.search(value):
            raise FormatError(f"template {name!r} is not literal text; override it with template_overrides")
    ascii_only = all(value.isascii() for value in known.values())
    memory: dict[str, str] = {}
    known_plain: set[str] = set()

    def fill(url: str, key: str) -> str:
        if url in known_plain:
            return url
        if url in memory:
            return memory[url]
        if not CODE.search(url):
            known_plain.add(url)  # millions of references name a few thousand files
            return url
        rest = PLACEHOLDER.sub("", url)
        if CODE.search(rest):
            raise FormatError(f"{key}: the template in {url!r} is not literal: only {{{{name}}}} is filled in")
        names = PLACEHOLDER.findall(url)
        missing = sorted(set(names) - set(known))
        if missing:
            raise FormatError(f"{key}: there is no template {missing[0]!r}; set it with template_overrides")
        length = len(rest) + sum(len(known[name]) for name in names)
        if length > LONGEST_URL:
            raise LimitError(
                f"{key}: its URL has {length} characters once templates are filled in, over the limit of {LONGEST_URL}"
            )
        if text is not None:
            text.take(length * (1 if ascii_only and url.isascii() else 4))
        memory[url] = PLACEHOLDER.sub(lambda match: str(known[match[1]]), url)
        return memory[url]

    return fill


def checked(key: str, value: Any, fill: Callable[[str, str], str]) -> Reference:
    """One reference in its plain form."""
    if isinstance(value, list):
        return _ranged(key, value, fill)
    if isinstance(value, str):
        return inline(key, value)
    if isinstance(value, Mapping):
        return json.dumps(value).encode()
    if isinstance(value, bytes):
        return value
    raise FormatError(f"{key}: a reference is text, an object or a list, not {type(value).__name__}")


def inline(key: str, value: str) -> bytes:
    """The bytes of inline text."""
    if not value.startswith(BASE64):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise FormatError(f"{key}: the inline text has a lone surrogate") from None
    try:
        return base64.b64decode(value[len(BASE64) :], validate=True)
    except (binascii.Error, ValueError):
        raise FormatError(f"{key}: the inline bytes are not base64") from None


def _ranged(key: str, value: list[Any], fill: Callable[[str, str], str]) -> Reference:
    if not value or not isinstance(value[0], str) or not value[0]:
        raise FormatError(f"{key}: a reference begins with the URL of its target")
    url = fill(value[0], key)
    if len(value) == 1:
        return [url]
    if len(value) == 3:
        span(key, value[1], value[2])
        return [url, value[1], value[2]]
    if len(value) == 2 and isinstance(value[1], list) and value[1]:
        if len(value[1]) > MOST_PARTS:
            raise LimitError(f"{key}: {len(value[1])} byte ranges, over the limit of {MOST_PARTS}")
        for pair in value[1]:
            if not isinstance(pair, list) or len(pair) != 2:
                raise FormatError(f"{key}: a byte range is [offset, length]")
            span(key, *pair)
        return [url, value[1]]
    raise FormatError(f"{key}: a reference has 1 or 3 parts, or a URL and a list of [offset, length]")


def span(key: str, offset: Any, length: Any) -> None:
    """FormatError where the numbers are not a byte range."""
    if type(offset) is not int or type(length) is not int:
        raise FormatError(f"{key}: offset and length must be integers")
    if offset < 0 or length < 0:
        raise FormatError(f"{key}: negative offset or length ({offset}, {length})")
    if offset + length > INT64:
        raise FormatError(f"{key}: offset plus length overflows ({offset}, {length})")


def ranges(reference: list[Any]) -> Iterator[tuple[int, int]]:
    """(offset, length) of each part of a reference that is not a whole file."""
    if len(reference) == 3:
        yield reference[1], reference[2]
    else:
        yield from ((offset, length) for offset, length in reference[1])
