"""What one more request costs, in bytes: how large a gap is worth reading over, by the kind of source."""

from __future__ import annotations

from periplus.policy import is_local, scheme_of

KIB = 1 << 10
MIB = 1 << 20


def gap(url: str) -> int:
    """Unwanted bytes between two ranges that are cheaper to read than to ask for the second range apart."""
    if is_local(url) or scheme_of(url) == "memory":
        return 4 * KIB
    return 256 * KIB


def largest(url: str) -> int:
    """Bytes beyond which a merged range is cut, so that its parts travel and decode side by side."""
    return 4 * MIB if is_local(url) else 16 * MIB
