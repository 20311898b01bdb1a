"""Foreign failures become ours here and nowhere else: OS errors, library errors, panics of native code."""

from __future__ import annotations

import asyncio
import errno
import re
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

_BY_NAME: dict[str, tuple[type[PeriplusError], str]] = {
    "NotFoundError": (MissingError, "no such object"),
    "PreconditionError": (StaleError, "the object changed after it was indexed"),
    "NotModifiedError": (StaleError, "the object changed after it was indexed"),
    "AlreadyExistsError": (ConflictError, "the object exists already"),
    "PermissionDeniedError": (
        DeniedError,
        "the store refuses access; credentials are those of storage_options, or of the environment",
    ),
    "UnauthenticatedError": (
        DeniedError,
        "the store wants credentials, in storage_options or the environment",
    ),
    "InvalidPathError": (FormatError, "not a name this store can hold"),
    "UnknownConfigurationKeyError": (FormatError, "unknown storage option"),
}
_MISSING = {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_METADATA = ("169.254.169.254", "metadata.google.internal")
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^\s\"'<>)]+")
_CODE = re.compile(r"<Code>([A-Za-z0-9.]+)</Code>")
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
            # Not `from error`: its text may hold signed URLs, which would reach logs with the traceback.
            raise ours from None


def translate(error: BaseException, url: str, offset: int | None = None) -> PeriplusError | None:
    """Our error for a foreign one, or None for what must pass: cancellation, interrupts, lack of memory."""
    if isinstance(error, PeriplusError):
        return error
    if isinstance(error, asyncio.CancelledError | MemoryError):
        return None
    name = type(error).__name__
    if not isinstance(error, Exception):
        if name != "PanicException":
            return None
        return FetchError("the storage library failed inside (panic)", url=url, offset=offset)
    if name in _BY_NAME:
        cls, text = _BY_NAME[name]
        # In a listing it is one name of many, which only the library tells.
        told = f" ({clean(str(error))})" if name == "InvalidPathError" else ""
        return cls(text + told, url=url, offset=offset)
    if isinstance(error, TimeoutError):
        return FetchError("the store did not answer in time", url=url, offset=offset)
    if isinstance(error, FileNotFoundError):
        return MissingError("no such file or object", url=url, offset=offset)
    if isinstance(error, FileExistsError):
        return ConflictError("the file exists already", url=url, offset=offset)
    if isinstance(error, PermissionError) or (isinstance(error, OSError) and error.errno in _DENIED):
        return DeniedError("the system refuses access", url=url, offset=offset)
    if isinstance(error, OSError) and error.errno in _MISSING:
        return MissingError(f"no such file ({error.strerror})", url=url, offset=offset)
    if isinstance(error, OSError) and error.strerror:
        return FetchError(f"{name}: {error.strerror}", url=url, offset=offset)
    text = clean(str(error))
    if "(NoSuchBucket)" in text or "(ContainerNotFound)" in text:
        return MissingError("there is no such bucket", url=url)
    if any(service in text for service in _METADATA):
        advice = 'pass them by storage_options or the environment, or {"anon": True} for public data'
        return DeniedError(f"no credentials were found; {advice}", url=url, offset=offset)
    return FetchError(f"{name}: {text}", url=url, offset=offset)


def clean(text: str) -> str:
    """The first line of a library's message, with URLs redacted and markup cut to its error code."""
    code = _CODE.search(text)
    line = _MARKUP.split(text.strip().partition("\n")[0])[0]
    line = _URL.sub(lambda found: redact(found[0]), line)[:300]
    return f"{line} ({code[1]})" if code else line
