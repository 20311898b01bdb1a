"""Findings: what is wrong or unusual in the attributes of a node, with a stable code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Severity: TypeAlias = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "error")
"""From the mildest."""
NO_PRINCIPAL = "principal.none"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding. `error`: something is lost or wrong; `warning`: meaning was guessed or left out; `info`: an older or
    unusual form of something clear."""

    code: str
    """Stable, `<convention>.<what>`, for example `ref.missing`; docs/conventions.md lists all."""
    severity: Severity
    path: str
    """Absolute path of the node: `/`, `/0/data`."""
    attribute: str
    """Which attribute, with a path into it: `cs.crs[0].axes.time`; empty where there is none."""
    message: str
    hint: str = ""
    """What a producer should write instead."""

    def __str__(self) -> str:
        where = f"{self.path} {self.attribute}".rstrip()
        return f"{where}: {self.message}" + (f" ({self.hint})" if self.hint else "")

    @property
    def warns(self) -> bool:
        """Whether every reader that opens the node warns of it: all but other forms and arrays without coordinates."""
        return self.severity != "info" and self.code != NO_PRINCIPAL
