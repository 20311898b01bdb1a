"""Foreign failures become ours here and nowhere else: OS errors, library errors, panics of native code."""

from __future__ import annotations

import asyncio
import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from periplus.errors import (
    ConflictError,
    DeniedError,
    FetchError,
    FormatError,
    MissingError,
    PeriplusError,
    StaleError,
    redact,
)
from periplus.limits import out_of_memory

_REFUSED = (
    "the store refuses access; check the key, secret and token in storage_options or the environment, pass "
    '{"anon": True} for public data, and requester_pays for a bucket whose requester pays'
)
_BY_NAME: dict[str, tuple[type[PeriplusError], str]] = {
    "NotFoundError": (MissingError, "no such object"),
    "PreconditionError": (StaleError, "the object changed after it was indexed"),
    "NotModifiedError": (StaleError, "the object changed after it was indexed"),
    "AlreadyExistsError": (ConflictError, "the object exists already"),
    "PermissionDeniedError": (DeniedError, _REFUSED),
    "UnauthenticatedError": (DeniedError, _REFUSED),
    "InvalidPathError": (FormatError, "not a name this store can hold"),
    "UnknownConfigurationKeyError": (FormatError, "unknown storage option"),
}
_BY_TYPE: tuple[tuple[type[OSError], type[PeriplusError], str], ...] = (
    (TimeoutError, FetchError, "the store did not answer in time"),
    (FileNotFoundError, MissingError, "no such file or object"),
    (FileExistsError, ConflictError, "the file exists already"),
    (PermissionError, DeniedError, "the system refuses access"),
)
_MISSING = {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP}
_SYSTEM: dict[int, tuple[type[PeriplusError], str]] = {
    errno.ENOSPC: (FetchError, "the disk is full; free some space, or write to another disk"),
    errno.EDQUOT: (FetchError, "the disk quota is used up; free some space, or write to another disk"),
    errno.EFBIG: (FetchError, "the file is too large for its file system, or for the limit of `ulimit -f`"),
    errno.EMFILE: (FetchError, "too many open files in this process; raise the limit of `ulimit -n`"),
    errno.ENFILE: (FetchError, "too many open files on this machine; close other programs"),
    errno.EIO: (FetchError, "the disk failed to read or write (input/output error); check it, or use another"),
    errno.EROFS: (DeniedError, "the file system is read-only"),
    errno.EACCES: (DeniedError, "the system refuses access"),
    errno.EPERM: (DeniedError, "the system refuses access"),
}
"""What an error of the system means to a user, and what to do."""
_REPORTED = (*_SYSTEM, errno.ENOMEM)
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_METADATA = ("169.254.169.254", "metadata.google.internal")
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^\s\"'<>)]+")
_CODE = re.compile(r"<Code>([A-Za-z0-9.]+)</Code>")
_DENIED = re.compile(
    r"status code: 40[13]\b"
    r"|\((AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|InvalidToken|TokenRefreshRequired)\)$"
)
"""A refusal that the library reports by its text alone: of a listing, or of a token that has expired."""
_MARKUP = re.compile(r"\s*:?\s*<(\?xml|Error|html|!DOCTYPE)", re.IGNORECASE)


class mapped:  # noqa: N801 - reads as a word: `with mapped(url): ...`
    """`with mapped(url, offset): ...` lets only errors of our tree, cancellation and interrupts out."""

    def __init__(self, url: str, offset: int | None = None) -> None:
        self.url, self.offset = url, offset

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, PeriplusError):
            return
        ours = translate(error, self.url, self.offset)
        if ours is not None:
            raise ours from cause(error)


@contextmanager
def system_errors(url: str) -> Iterator[None]:
    """As `mapped`, for code of our own: only errors of the system and a lack of memory become ours."""
    try:
        yield
    except PeriplusError:
        raise
    except (OSError, MemoryError) as error:
        raise translate(error, url) or error from cause(error)


def cause(error: BaseException) -> BaseException | None:
    """What our error is raised from: errors of Python itself.

    Not those of libraries, whose text may hold signed URLs, which would reach logs with the traceback.
    """
    own = type(error).__module__ in ("builtins", "socket", "asyncio.exceptions", "numpy")
    return error if own and not _URL.search(str(error)) else None  # libraries raise FileNotFoundError too


def translate(error: BaseException, url: str, offset: int | None = None) -> PeriplusError | None:
    """Our error for a foreign one, or None for what must pass: cancellation and interrupts."""
    if isinstance(error, PeriplusError):
        return error
    if isinstance(error, asyncio.CancelledError):
        return None
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return out_of_memory("the bytes of this file", url=url, offset=offset)
    name = type(error).__name__
    if not isinstance(error, Exception):
        if name != "PanicException":
            return None
        return FetchError("the storage library failed inside (panic)", url=url, offset=offset)
    if name in _BY_NAME:
        cls, text = _BY_NAME[name]
        # In a listing it is one name of many, which only the message of the library contains.
        text_of_error = f" ({clean(str(error))})" if name == "InvalidPathError" else ""
        return cls(text + text_of_error, url=url, offset=offset)
    for kind, cls, text in _BY_TYPE:
        if isinstance(error, kind):
            return cls(text, url=url, offset=offset)
    if isinstance(error, OSError) and error.errno in _MISSING:
        return MissingError(f"no such file ({error.strerror})", url=url, offset=offset)
    if isinstance(error, OSError) and error.errno in _SYSTEM:
        cls, text = _SYSTEM[error.errno]
        return cls(text, url=url, offset=offset)
    if isinstance(error, OSError) and error.strerror:
        return FetchError(f"{name}: {error.strerror}", url=url, offset=offset)
    known = system_error(str(error))
    if known is not None:
        return translate(known, url, offset)
    text = clean(str(error))
    if "(NoSuchBucket)" in text or "(ContainerNotFound)" in text:
        return MissingError("there is no such bucket", url=url)
    if _DENIED.search(text):
        code = _CODE.search(str(error))
        return DeniedError(_REFUSED + (f" ({code[1]})" if code else ""), url=url, offset=offset)
    if any(service in text for service in _METADATA):
        advice = 'pass them by storage_options or the environment, or {"anon": True} for public data'
        return DeniedError(f"no credentials were found; {advice}", url=url, offset=offset)
    return FetchError(f"{name}: {text}", url=url, offset=offset)


def system_error(text: str) -> OSError | None:
    """The error of the system that a library reports by its text alone."""
    found = _OS_ERROR.search(text)
    number = int(found[1]) if found else next((n for n in _REPORTED if os.strerror(n) in text), None)
    return None if number not in _REPORTED else OSError(number, os.strerror(number))


def clean(text: str) -> str:
    """The first line of a library's message, with URLs redacted and markup cut to its error code."""
    code = _CODE.search(text)
    line = _MARKUP.split(text.strip().partition("\n")[0])[0]
    line = _URL.sub(lambda found: redact(found[0]), line)[:300]
    return f"{line} ({code[1]})" if code else line
