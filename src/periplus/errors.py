"""The error tree: every failure of periplus is one of these, and also the builtin one would expect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from periplus.redaction import redact as redact


def some(names: Iterable[str], *, like: str = "", most: int = 8) -> str:
    """Names for a message; those that contain `like`, or of which a part nearly matches it, come first."""
    given = list(names)
    wanted = like.strip("/").lower()
    near = [name for name in given if wanted and wanted in name.lower()]
    if wanted and not near:
        from difflib import get_close_matches

        parts = {name: {name.lower(), *name.lower().split("/")} for name in given[:10_000]}
        alike = get_close_matches(wanted, set().union(*parts.values()), n=most)
        near = [name for part in alike for name in parts if part in parts[name]]
    shown = list(dict.fromkeys([*near[:most], *given[:most]]))[:most]
    return ", ".join(shown) + (f" and {len(given) - most:,} more" if len(given) > most else "") if given else "none"


class PeriplusError(Exception):
    """Root of the tree. `kind` is stable and machine readable; `url` is redacted; `offset` is in bytes."""

    kind = "error"

    def __init__(self, message: str, *, url: str | None = None, offset: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.url = None if url is None else redact(url)
        self.offset = offset

    def __str__(self) -> str:
        if self.url is None and self.offset is None:
            return self.message
        where = self.url or ""
        if self.offset is not None:
            where = f"{where} @ {self.offset}".strip()
        return f"{self.message} ({where})"

    def at(self, *, url: str | None = None, offset: int | None = None) -> PeriplusError:
        """This error, with URL and offset filled in where they were unknown."""
        if self.url is None and url is not None:
            self.url = redact(url)
        if self.offset is None:
            self.offset = offset
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.url, self.offset))


def _rebuild(cls: type[PeriplusError], message: str, url: str | None, offset: int | None) -> PeriplusError:
    return cls(message, url=url, offset=offset)


class FormatError(PeriplusError, ValueError):
    """The file or index is not what it claims to be, or is a kind we refuse on purpose."""

    kind = "format"


class DecodeError(PeriplusError, ValueError):
    """The bytes of one chunk do not decode to the declared shape."""

    kind = "decode"


class StaleError(PeriplusError, OSError):
    """The object changed after it was indexed."""

    kind = "stale"


class DeniedError(PeriplusError, PermissionError):
    """Policy forbids this URL."""

    kind = "denied"


class LimitError(PeriplusError, ValueError):
    """A declared size exceeds the budget."""

    kind = "limit"


class FetchError(PeriplusError, OSError):
    """The store did not answer, or not with what was asked for, after retries."""

    kind = "fetch"


class MissingError(PeriplusError, KeyError):
    """No such array, chunk or object."""

    kind = "missing"


class ConflictError(PeriplusError, OSError):
    """Another writer came first, or files do not fit into one array."""

    kind = "conflict"


EXTRAS = {
    "xarray": "xarray",
    "dask": "xarray",
    "zarr": "zarr",
    "numcodecs": "zarr",
    "fsspec": "kerchunk",
    "virtualizarr": "virtualizarr",
    "obspec_utils": "virtualizarr",
    "icechunk": "icechunk",
    "matplotlib": "plot",
    "pandas": "xarray",
}
"""Optional libraries, and the extra of periplus that installs each."""


def advice(error: ModuleNotFoundError) -> str | None:
    """What to install for an optional library that is missing; None for any other module."""
    library = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(library)
    return None if extra is None else f"this needs {library}: pip install 'periplus[{extra}]'"


@contextmanager
def guided() -> Iterator[None]:
    """Add to a ModuleNotFoundError which extra installs the library."""
    try:
        yield
    except ModuleNotFoundError as error:
        stated = advice(error)
        if stated is None:
            raise
        raise ModuleNotFoundError(stated, name=error.name) from error
