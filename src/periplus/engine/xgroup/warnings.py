"""Errors of the engine `xgroup`, and the warnings that it gives instead of them while a store is opened."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING

from periplus.conventions.diagnostic import Diagnostic
from periplus.errors import FetchError, FormatError, MissingError, PeriplusError

if TYPE_CHECKING:
    from periplus.engine.assemble.source import Findings

MOST_WARNINGS = 50
"""Warnings of one opening: a store of thousands of broken arrays does not give thousands of them."""
_NAMED = 8


class XGroupError(PeriplusError):
    """Base class of errors of the engine `xgroup`."""

    kind = "xgroup"


class XGroupReferenceError(XGroupError, MissingError):
    """A reference names a node that does not exist."""

    kind = "missing"


class XGroupStoreError(XGroupError, FetchError):
    """A store cannot be accessed, or access is not allowed."""

    kind = "fetch"


class XGroupPathError(XGroupError, FormatError):
    """A path is invalid, or goes above the root."""

    kind = "format"


class XGroupWarning(UserWarning):
    """Base class of the warnings given while a store is opened."""


class XGroupNoPrincipalWarning(XGroupWarning):
    """Arrays have no principal convention, or something their conventions refer to could not be found.

    Broken references warn with categories below this one, so one filter silences or promotes them all.
    """


class XGroupReferenceWarning(XGroupNoPrincipalWarning):
    """A reference names a node that does not exist; stands for an XGroupReferenceError."""


class XGroupStoreWarning(XGroupNoPrincipalWarning):
    """Another store cannot be accessed; stands for an XGroupStoreError."""


class XGroupPathWarning(XGroupNoPrincipalWarning):
    """A reference is invalid; stands for an XGroupPathError."""


class XGroupConflictWarning(XGroupWarning):
    """Arrays of one group cannot share dimensions or coordinates; some were renamed."""


class XGroupConventionWarning(XGroupWarning):
    """A convention is declared or used in an unclear way: its meaning was guessed, or it was ignored."""


_BROKEN: dict[str, tuple[type[XGroupWarning], type[XGroupError]]] = {
    "node.unreadable": (XGroupReferenceWarning, XGroupReferenceError),
    "ref.missing": (XGroupReferenceWarning, XGroupReferenceError),
    "ref.cycle": (XGroupReferenceWarning, XGroupReferenceError),
    "ref.kind": (XGroupReferenceWarning, XGroupReferenceError),
    "ref.malformed": (XGroupPathWarning, XGroupPathError),
    "ref.path": (XGroupPathWarning, XGroupPathError),
    "ref.store": (XGroupStoreWarning, XGroupStoreError),
    "ref.denied": (XGroupStoreWarning, XGroupStoreError),
}


def warn_of(findings: Findings) -> None:
    """Warn of all findings, the most severe first, at the line of the user's own code."""
    level = _stacklevel()
    ranked = sorted(findings.findings.values(), key=lambda one: (one.severity != "error", one.code not in _BROKEN))
    messages = [_shown(one) for one in ranked]
    for path, reasons in findings.conflicts.items():
        text = f"{path} has {', '.join(reasons)}; its dimensions were renamed: {', '.join(reasons.values())}"
        messages.append((text, XGroupConflictWarning))
    if findings.without_principal:
        text = f"no principal convention gives coordinates to {_some(findings.without_principal)}"
        messages.insert(0, (text, XGroupNoPrincipalWarning))
    for text, category in messages[:MOST_WARNINGS]:
        warnings.warn(text, category, stacklevel=level)
    if len(messages) > MOST_WARNINGS:
        more = f"{len(messages) - MOST_WARNINGS} further findings; `periplus validate` lists all"
        warnings.warn(more, XGroupWarning, stacklevel=level)


_INNER = ("xarray", "periplus", "contextlib")


def _stacklevel() -> int:
    """Frames from the caller up to the first that belongs neither to us nor to xarray (nor to a decorator)."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _INNER:
        frame, level = frame.f_back, level + 1
    return level


def _shown(finding: Diagnostic) -> tuple[str, type[XGroupWarning]]:
    if finding.code not in _BROKEN:
        return str(finding), XGroupConventionWarning
    category, error = _BROKEN[finding.code]
    hint = f" ({finding.hint})" if finding.hint else ""
    where = f", attribute {finding.attribute!r}" if finding.attribute else ""
    return f"{error.__name__}: {finding.path}{where}: {finding.message}{hint}", category


def _some(paths: list[str]) -> str:
    named = ", ".join(paths[:_NAMED])
    return named if len(paths) <= _NAMED else f"{named} and {len(paths) - _NAMED} other arrays"
