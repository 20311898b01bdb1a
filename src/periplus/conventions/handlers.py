"""Handlers of further conventions, which other packages provide by entry point or register."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import entry_points
from typing import Any, Literal, Protocol, runtime_checkable

from periplus.conventions.diagnostic import Diagnostic

ENTRY_POINTS = "zarr_xgroup.conventions"


@runtime_checkable
class Handler(Protocol):
    """A convention that applies to arrays.

    `root`, `group` and `array` are the store's root group, the group that contains the array, and the array, as the
    caller has them: Zarr objects in the xarray engine. Variables are keyed by the names they should appear under.
    """

    tier: Literal["principal", "service"]
    name: str
    uuid: str | None

    def detect(self, root: Any, group: Any, array: Any) -> bool:
        """Whether the convention applies to this array."""
        ...

    def get_variables(self, array: Any, group: Any, root: Any) -> Mapping[str, Any]:
        """Coordinate variables to attach."""
        ...


@dataclass(frozen=True, slots=True)
class HandlerResult:
    """What handlers gave for one array."""

    variables: Mapping[str, Any]
    principal: tuple[str, ...]
    """Names of the principal handlers that applied."""
    diagnostics: tuple[Diagnostic, ...]


_registered: list[Handler] = []


def register(handler: Any) -> Handler:
    """Add a handler, or a class of one, for this process, as an entry point would."""
    made = _made(handler)
    _registered.append(made)
    return made


def unregister(handler: Any) -> None:
    """Remove a handler that was registered, or the class it was registered by."""
    _registered[:] = [one for one in _registered if one is not handler and type(one) is not handler]


def third_parties() -> tuple[tuple[Handler, ...], tuple[Diagnostic, ...]]:
    """Handlers of other packages, principal ones first, and what is wrong with those that could not be loaded."""
    installed, notes = _installed()
    both = [*installed, *_registered]
    return tuple(sorted(both, key=lambda handler: (handler.tier != "principal", str(handler.name)))), notes


def ask(handlers: Iterable[Handler], *, path: str, root: Any, group: Any, array: Any) -> HandlerResult:
    """What handlers add to one array; one that fails is a finding, and the others are still asked."""
    variables: dict[str, Any] = {}
    principal: list[str] = []
    notes: list[Diagnostic] = []
    for handler in handlers:
        name = str(getattr(handler, "name", type(handler).__name__))
        try:
            if not handler.detect(root, group, array):
                continue
            given = dict(handler.get_variables(array, group, root))
        except Exception as error:  # noqa: BLE001 - an error in other code must not prevent opening a store
            message = f"the handler of {name!r} failed: {type(error).__name__}: {str(error)[:300]}"
            notes.append(Diagnostic("handler.failed", "warning", path, "", message))
            continue
        if handler.tier == "principal":
            principal.append(name)
        for key, value in given.items():
            if key in variables:
                message = f"{name!r} gives {key!r} again; the first is kept"
                notes.append(Diagnostic("handler.repeated", "warning", path, "", message))
            else:
                variables[str(key)] = value
    return HandlerResult(variables, tuple(principal), tuple(notes))


@lru_cache(maxsize=1)
def _installed() -> tuple[tuple[Handler, ...], tuple[Diagnostic, ...]]:
    handlers: list[Handler] = []
    notes: list[Diagnostic] = []
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        try:
            handlers.append(_made(point.load()))
        except Exception as error:  # noqa: BLE001 - importing another package may raise anything
            message = f"{point.name} ({point.value}) cannot be loaded: {type(error).__name__}: {str(error)[:300]}"
            notes.append(Diagnostic("handler.unloadable", "warning", "/", "", message))
    return tuple(handlers), tuple(notes)


def _made(thing: Any) -> Handler:
    handler = thing() if isinstance(thing, type) else thing
    if not isinstance(handler, Handler):
        raise TypeError("a handler has tier, name, uuid, detect and get_variables")
    if handler.tier not in ("principal", "service"):
        raise TypeError(f"the tier of a handler is principal or service, not {handler.tier!r}")
    return handler
