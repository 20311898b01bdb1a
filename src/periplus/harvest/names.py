"""Times from file names in a run: of the files that are read, and of those that an index has already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from periplus.arrange import FileEntry
from periplus.arrange.pattern import NamePattern
from periplus.arrange.times import check_pattern, with_name_times
from periplus.errors import ConflictError
from periplus.harvest.growth.stored import OWN_TIMES
from periplus.harvest.parts.gather import Gathered


@dataclass(slots=True)
class Names:
    """What a pattern gives the files of a run."""

    pattern: NamePattern | None
    own: bool = False
    """Whether a file has a time of its own, and its name another."""

    @property
    def give_times(self) -> bool:
        return self.pattern is not None and self.pattern.time is not None

    def timed(self, entries: Sequence[FileEntry]) -> Sequence[FileEntry]:
        """Entries with the times in their names."""
        return entries if self.pattern is None else with_name_times(entries, self.pattern, skip_misfits=False)[0]

    def apply(self, gathered: Gathered, *, skip_misfits: bool, kept: int = 0) -> Mapping[int, str]:
        """Give files the times in their names; those that do not match. That no file matches is an error."""
        if self.pattern is None:
            return {}
        gathered.entries, misfits, own = with_name_times(gathered.entries, self.pattern, skip_misfits=skip_misfits)
        self.own = self.own or own
        if misfits and not kept and all(entry.error is not None for entry in gathered.entries):
            raise ConflictError(f"no file matches: {next(iter(misfits.values()))}")
        return misfits

    def recorded(self) -> dict[str, bool]:
        """For the arrangement: whether files have times of their own, which a run without the pattern must read."""
        return {OWN_TIMES: self.own} if self.give_times else {}


def named(kind: str, options: Mapping[str, Any]) -> Names:
    """The names of a run with these options."""
    chosen = {name: options[name] for name in ("dim", "coordinate")}
    return Names(check_pattern(options["pattern"], kind=kind, **chosen))
