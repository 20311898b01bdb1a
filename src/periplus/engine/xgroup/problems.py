"""What can be wrong with a hierarchy, as errors and as the warnings that stand for them while a store opens."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable

from periplus.conventions.diagnostic import Diagnostic
from periplus.errors import FetchError, FormatError, MissingError, PeriplusError

MOST_WARNINGS = 50
"""Warnings of one opening; a store of thousands of broken arrays need not say so thousands of times."""
_NAMED = 8


class XGroupError(PeriplusError):
    """Root of what the engine `xgroup` itself says."""

    kind = "xgroup"


class XGroupReferenceError(XGroupError, MissingError):
    """A reference names a node that does not exist."""

    kind = "missing"


class XGroupStoreError(XGroupError, FetchError):
    """A store cannot be reached, or may not be."""

    kind = "fetch"


class XGroupPathError(XGroupError, FormatError):
    """A path is malformed, or climbs above the root."""

    kind = "format"


class XGroupWarning(UserWarning):
    """Root of the warnings given while a store opens."""


class XGroupNoPrincipalWarning(XGroupWarning):
    """Arrays have no principal convention, or not all that their conventions promise could be found.

    Broken references warn with categories below this one, so one filter silences or promotes them all.
    """


class XGroupReferenceWarning(XGroupNoPrincipalWarning):
    """A reference leads nowhere: what an XGroupReferenceError would say."""


class XGroupStoreWarning(XGroupNoPrincipalWarning):
    """Another store is out of reach: what an XGroupStoreError would say."""


class XGroupPathWarning(XGroupNoPrincipalWarning):
    """A reference is malformed: what an XGroupPathError would say."""


class XGroupConflictWarning(XGroupWarning):
    """Arrays of one group cannot share dimensions or coordinates; some were renamed."""


class XGroupConventionWarning(XGroupWarning):
    """A convention is declared or used in a way that had to be guessed at, or was left out."""


_BROKEN: dict[str, tuple[type[XGroupWarning], type[XGroupError]]] = {
    "ref.missing": (XGroupReferenceWarning, XGroupReferenceError),
    "ref.cycle": (XGroupReferenceWarning, XGroupReferenceError),
    "ref.path": (XGroupPathWarning, XGroupPathError),
    "ref.store": (XGroupStoreWarning, XGroupStoreError),
    "ref.denied": (XGroupStoreWarning, XGroupStoreError),
}
NO_PRINCIPAL = "principal.none"


class Report:
    """Findings of one opening, gathered and then said once each."""

    def __init__(self) -> None:
        self.findings: dict[tuple[str, str, str, str], Diagnostic] = {}
        self.bare: list[str] = []
        """Paths of arrays without a principal convention."""
        self.conflicts: dict[str, dict[str, str]] = {}
        """Paths of arrays that do not fit those beside them: why, and how the dimension is called instead."""

    def add(self, diagnostics: Iterable[Diagnostic]) -> None:
        for finding in diagnostics:
            if finding.code != NO_PRINCIPAL and finding.severity != "info":
                self.findings[finding.code, finding.path, finding.attribute, finding.message] = finding

    def broken(self, path: str, attribute: str, reason: str, code: str = "ref.missing") -> None:
        """Note that something an array refers to could not be used."""
        self.add([Diagnostic(code, "error", path, attribute, reason)])

    def say(self) -> None:
        """Warn of everything noted, the gravest first, at the line of the user's own code."""
        level = _stacklevel()
        ranked = sorted(self.findings.values(), key=lambda one: (one.severity != "error", one.code not in _BROKEN))
        said = [_shown(one) for one in ranked]
        for path, reasons in self.conflicts.items():
            text = f"{path} has {', '.join(reasons)}; it has dimensions of its own: {', '.join(reasons.values())}"
            said.append((text, XGroupConflictWarning))
        if self.bare:
            text = f"no principal convention gives coordinates to {_some(self.bare)}"
            said.insert(0, (text, XGroupNoPrincipalWarning))
        for text, category in said[:MOST_WARNINGS]:
            warnings.warn(text, category, stacklevel=level)
        if len(said) > MOST_WARNINGS:
            more = f"{len(said) - MOST_WARNINGS} further findings; `periplus validate` lists all"
            warnings.warn(more, XGroupWarning, stacklevel=level)


_INNER = ("xarray", "periplus", "contextlib")


def _stacklevel() -> int:
    """Frames up to the first that is neither ours nor xarray's (nor of a decorator of ours), from the caller."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _INNER:
        frame, level = frame.f_back, level + 1
    return level


def _shown(finding: Diagnostic) -> tuple[str, type[XGroupWarning]]:
    if finding.code not in _BROKEN:
        return str(finding), XGroupConventionWarning
    category, error = _BROKEN[finding.code]
    hint = f" ({finding.hint})" if finding.hint else ""
    return f"{error.__name__}: {finding.path}, attribute {finding.attribute!r}: {finding.message}{hint}", category


def _some(paths: list[str]) -> str:
    named = ", ".join(paths[:_NAMED])
    return named if len(paths) <= _NAMED else f"{named} and {len(paths) - _NAMED} other arrays"
