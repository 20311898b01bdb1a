"""Glob patterns over slash-separated names: `*`, `?`, `[..]` within a segment, `**` for any number of segments."""

from __future__ import annotations

import fnmatch
import re

_MAGIC = re.compile(r"[*?\[]")


def hidden(name: str) -> bool:
    """Names a listing passes over unless they are asked for."""
    return name.startswith(".")


class Glob:
    """A glob: the folder that contains all matches, and which folders below may contain some."""

    def __init__(self, pattern: str) -> None:
        self.text = pattern
        segments = pattern.split("/")
        fixed = next((i for i, segment in enumerate(segments) if _MAGIC.search(segment)), len(segments) - 1)
        self.folder = "/".join(segments[:fixed]) + "/" if fixed else ""
        """The literal part, ending in a slash; nothing outside it is ever listed."""
        self.segments = segments[fixed:]
        self._matchers = [None if s == "**" else re.compile(fnmatch.translate(s)) for s in self.segments]

    @staticmethod
    def is_glob(text: str) -> bool:
        return _MAGIC.search(text) is not None

    @property
    def deep(self) -> bool:
        """Whether any number of folders may be between."""
        return "**" in self.segments

    def matches(self, name: str) -> bool:
        """Whether a full name (folder included) is meant."""
        return name.startswith(self.folder) and self._match(name[len(self.folder) :].split("/"), whole=True)

    def may_enter(self, folder: str) -> bool:
        """Whether something below this folder can match."""
        inside = folder.rstrip("/")[len(self.folder) :]
        return self._match(inside.split("/"), whole=False)

    def _match(self, names: list[str], *, whole: bool) -> bool:
        # The set of pattern positions reachable after each name; no backtracking, so no pattern is slow.
        at = self._skip({0})
        for name in names:
            at = self._skip({j for i in at for j in self._step(i, name)})
            if not at:
                return False
        end = len(self._matchers)
        return end in at if whole else any(i < end for i in at)

    def _step(self, i: int, name: str) -> tuple[int, ...]:
        if i >= len(self._matchers):
            return ()
        matcher = self._matchers[i]
        if hidden(name) and not (matcher is not None and hidden(self.segments[i])):
            return ()
        if matcher is None:
            return (i,)
        return (i + 1,) if matcher.match(name) else ()

    def _skip(self, at: set[int]) -> set[int]:
        """`**` also matches no segment at all."""
        reach = set(at)
        for i in at:
            while i < len(self._matchers) and self._matchers[i] is None:
                i += 1
                reach.add(i)
        return reach
