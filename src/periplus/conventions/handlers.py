"""Handlers of conventions: those of other packages, found by entry point, and our own with the same interface."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal, Protocol, runtime_checkable

from periplus.conventions.diagnostic import Diagnostic
from periplus.conventions.identity import CONVENTIONS, declared, names
from periplus.conventions.meaning import Coord
from periplus.conventions.node import Node, NodeLookup
from periplus.conventions.read import Reader

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
            handlers.append(_loaded(point))
        except Exception as error:  # noqa: BLE001 - importing another package may raise anything
            message = f"{point.name} ({point.value}) cannot be loaded: {type(error).__name__}: {str(error)[:300]}"
            notes.append(Diagnostic("handler.unloadable", "warning", "/", "", message))
    return tuple(handlers), tuple(notes)


def _loaded(point: EntryPoint) -> Handler:
    return _made(point.load())


def _made(thing: Any) -> Handler:
    handler = thing() if isinstance(thing, type) else thing
    if not isinstance(handler, Handler):
        raise TypeError("a handler has tier, name, uuid, detect and get_variables")
    if handler.tier not in ("principal", "service"):
        raise TypeError(f"the tier of a handler is principal or service, not {handler.tier!r}")
    return handler


PRINCIPAL = ("cs", "dimensions", "spatial")
"""In order of precedence: the first that describes an axis gives its coordinates."""
SERVICE = ("proj", "ref", "uom", "geolocation", "multiscales", "CF", "tessera", "geoemb")


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """One convention of ours as a handler. `root` is the store's lookup; variables are descriptions, not arrays."""

    tier: Literal["principal", "service"]
    name: str
    uuid: str | None

    def detect(self, root: NodeLookup, group: Node | None, array: Node) -> bool:
        """Whether the array, or the group it inherits from, declares the convention, or it gives coordinates anyway."""
        nodes = [node for node in (array, group) if node is not None]
        if any(self.name in names(declared(node.attributes, node.path)[0]) for node in nodes):
            return True
        return bool(self.get_variables(array, group, root))

    def get_variables(self, array: Node, group: Node | None, root: NodeLookup) -> Mapping[str, Coord]:
        """The coordinates that this convention gives the array, by name."""
        del group  # found again through the root, as every other node is
        meaning = Reader(lookup=root).array(array)
        return {coord.name: coord for coord in meaning.coords if coord.convention == self.name}


BUILT_IN: tuple[BuiltIn, ...] = tuple(
    BuiltIn("principal" if name in PRINCIPAL else "service", name, CONVENTIONS[name].uuid)
    for name in PRINCIPAL + SERVICE
)
