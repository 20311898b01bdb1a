"""What an entry of the registry consists of, and what its functions take and return."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from periplus.fetch import Fetch
    from periplus.limits import Limits
    from periplus.table import Table
    from periplus.table.stored_form import Content
    from periplus.zarr.icechunk.write import IcechunkCommit


class UnknownOptionError(TypeError):
    """An option that the form of the index does not have, and those that it has."""

    def __init__(self, unknown: Sequence[str], valid: Sequence[str], action: str) -> None:
        self.unknown, self.valid, self.action = unknown, valid, action
        super().__init__(self.message(lambda name: f"{name}="))

    def message(self, spelled: Callable[[str], str]) -> str:
        """The error in the words of an interface, which spells options its own way."""
        unknown, valid = (", ".join(map(spelled, names)) for names in (self.unknown, self.valid))
        options = f"its options are {valid}" if valid else "it has no options"
        return f"{unknown} does not apply to {self.action}; {options}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """An index to open, and what it may access."""

    url: str
    fetch: Fetch
    limits: Limits
    allow: tuple[str, ...] = ()
    trust: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """An index to write, and where to."""

    table: Table
    url: str
    fetch: Fetch
    """It may access the sources of the index."""
    limits: Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteReport:
    """What `Index.write` wrote."""

    url: str
    form: str
    references: int
    files: int
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Arrays that were not written, and why."""
    commit: IcechunkCommit | None = None
    """Of an Icechunk repository: the snapshot, and how many chunks are references or copies."""


class FormResult(NamedTuple):
    """The result of an entry's `write`."""

    table: Table
    """Opened from the location that was written."""
    skipped: Mapping[str, str]
    commit: IcechunkCommit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexForm:
    """One form of an index. The keyword-only parameters of `open` and `write` are its options."""

    name: str
    description: str
    """As a noun phrase, for messages."""
    endings: tuple[str, ...]
    """Of names, which decide which form is tried first; a dataset folder, the default, needs none."""
    recognise: Callable[[Content], bool]
    open: Callable[..., Table]
    write: Callable[..., FormResult]

    def check_options(self, function: Callable[..., Any], given: Mapping[str, Any]) -> None:
        """TypeError where `function`, one of `open` and `write`, does not have an option, or not with such a value."""
        options = {name: one for name, one in signature(function).parameters.items() if one.kind is one.KEYWORD_ONLY}
        valid = list(options)
        unknown = [name for name in given if name not in valid]
        if unknown:
            verb = "opening" if function is self.open else "writing"
            raise UnknownOptionError(unknown, valid, f"{verb} {self.description}")
        for name, value in given.items():
            annotation = str(options[name].annotation)
            names = " or names of arrays" if "Collection" in annotation else ""
            if annotation.startswith("bool") and (isinstance(value, str) if names else not isinstance(value, bool)):
                raise TypeError(f"{name}= is True or False{names}, not {value!r}")
