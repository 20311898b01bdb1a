"""The result of a validation: findings with codes and severities, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from periplus.conventions.diagnostic import SEVERITIES, Diagnostic, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """One safe change that repairs a finding."""

    code: str
    """Of the finding it answers."""
    path: str
    attribute: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationReport:
    """Findings of one store, the most severe first."""

    url: str | None
    profile: str
    groups: int
    arrays: int
    conventions: Mapping[str, int] = field(default_factory=dict)
    """How many nodes declare each convention."""
    findings: tuple[Diagnostic, ...] = ()
    repairs: tuple[Repair, ...] = ()
    """What can be repaired, or, after fixing, what was."""
    fixed: bool = False
    fail_on: Severity = "error"
    """The least severity for which the store is not `ok`."""

    @property
    def worst(self) -> Severity | None:
        """The highest severity; None without findings."""
        return max((one.severity for one in self.findings), key=SEVERITIES.index, default=None)

    @property
    def ok(self) -> bool:
        """Whether no finding is as severe as `fail_on`, by default an error."""
        return not any(SEVERITIES.index(one.severity) >= SEVERITIES.index(self.fail_on) for one in self.findings)

    def count(self, severity: Severity) -> int:
        return sum(finding.severity == severity for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON has it."""
        return {
            "url": self.url,
            "profile": self.profile,
            "groups": self.groups,
            "arrays": self.arrays,
            "conventions": dict(self.conventions),
            "worst": self.worst,
            "fail_on": self.fail_on,
            "ok": self.ok,
            "counts": {severity: self.count(severity) for severity in reversed(SEVERITIES)},
            "findings": [asdict(finding) for finding in self.findings],
            "repairs": [asdict(repair) for repair in self.repairs],
            "fixed": self.fixed,
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2)


def ordered(findings: list[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Findings once each, the most severe first, then by path."""
    rank = {severity: n for n, severity in enumerate(reversed(SEVERITIES))}
    return tuple(sorted(dict.fromkeys(findings), key=lambda one: (rank[one.severity], one.path, one.code)))
