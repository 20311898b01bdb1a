"""The summary of a run of `index`, and the errors if there is nothing to index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from periplus.arrange.arrangement import REPLACED
from periplus.errors import FormatError, MissingError, PeriplusError, redact
from periplus.harvest.scanning.drive import Harvested
from periplus.model import Files


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Counts of one run of `index`."""

    files: int = 0
    """Rows of the files table, and inputs that name no file."""
    ok: int = 0
    failed: int = 0
    """Files that could not be read or do not fit."""
    replaced: int = 0
    """Files that `duplicates` replaced by others; their rows have the reason."""
    skipped: int = 0
    """Files of unsupported formats in folders, and items without the requested asset."""
    reused: int = 0
    """Unchanged files of an earlier run, which were not read again."""
    gone: int = 0
    """Files that the index had and no longer has: they do not exist, or were not given."""
    rows: int = 0
    """References."""
    bytes: int = 0
    """Size of the files that were indexed."""
    arrays_read: int = 0
    """Coordinate arrays whose values were read while indexing."""
    bytes_read: int = 0
    """Decoded bytes of these arrays."""
    arrangement: str = ""
    errors: tuple[tuple[str, str], ...] = ()
    """(URL, `kind: message`) of the first few that failed."""
    replacements: tuple[tuple[str, str], ...] = ()
    """(URL, reason) of the first few that were replaced."""
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0

    def __str__(self) -> str:
        parts = [f"{self.ok:,} of {self.files:,} files indexed ({amount(self.bytes)}), {self.rows:,} references"]
        others = (
            (self.reused, "reused"),
            (self.gone, "removed from the index (missing, or no longer given)"),
            (self.skipped, "skipped (unsupported format, or not requested)"),
        )
        parts += [f"{count:,} {what}" for count, what in others if count]
        if self.arrays_read:
            parts.append(f"{self.arrays_read:,} coordinate arrays read ({amount(self.bytes_read)})")
        lines = [", ".join(parts) + f", in {self.seconds:.1f} s"]
        lines += _examples(self.failed, "failed", self.errors)
        lines += _examples(self.replaced, "replaced by other files", self.replacements)
        lines += [f"note: {warning}" for warning in self.warnings]
        # A path may contain characters that cannot be encoded.
        return "\n".join(lines).encode("utf-8", "backslashreplace").decode()


def count_files(files: Files, *, shown: int) -> Summary:
    """Counts of the files of an index, and the first few that were replaced."""
    good = np.array([status == "ok" for status in files.status], bool)
    replaced = [i for i, error in enumerate(files.error) if error is not None and error.startswith(REPLACED)]
    return Summary(
        files=len(files),
        ok=int(good.sum()),
        failed=len(files) - int(good.sum()) - len(replaced),
        replaced=len(replaced),
        bytes=int(np.maximum(files.size, 0)[good].sum()),
        replacements=tuple((files.path[i], files.error[i] or "") for i in replaced[:shown]),
    )


def nothing_to_index(given: Sequence[str], skipped: int) -> MissingError:
    """The error if there is no file."""
    what = ", ".join(redact(url) for url in given[:3]) + (", …" if len(given) > 3 else "")
    more = f"; {skipped} files of unsupported formats were skipped" if skipped else ""
    return MissingError(f"there is nothing to index at {what or 'an empty list'}{more}")


def nothing_readable(failures: Sequence[Harvested], count: int) -> PeriplusError:
    """The error if no file could be read: of the kind that most of the failures have."""
    shown = "; ".join(f"{redact(f.source.url)}: {f.error}" for f in failures[:3])
    kinds = Counter(FormatError if f.raised is None else type(f.raised) for f in failures)
    return kinds.most_common(1)[0][0](f"none of {count:,} files could be read: {shown}" + ("; …" if count > 3 else ""))


def _examples(count: int, what: str, some: Sequence[tuple[str, str]]) -> list[str]:
    """Lines that count files and name the first few."""
    if not count:
        return []
    lines = [f"{count:,} {what}" + (":" if some else "; see the table of files")]
    lines += [f"  {redact(url)}: {why}" for url, why in some]
    if count > len(some) > 0:
        lines.append(f"  … and {count - len(some):,} more, in the table of files")
    return lines


def amount(size: int) -> str:
    """A number of bytes with a unit."""
    value, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
