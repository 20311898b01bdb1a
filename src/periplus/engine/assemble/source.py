"""What the assembler is given: options, a source of arrays and their meaning, and a list for what it finds wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import xarray as xr

from periplus.conventions.diagnostic import Diagnostic
from periplus.conventions.handlers import HandlerResult
from periplus.conventions.meaning import External, Meaning
from periplus.conventions.node import Node
from periplus.limits import GIB
from periplus.model import Georeference

DECODING = (
    "mask_and_scale",
    "decode_times",
    "concat_characters",
    "decode_coords",
    "use_cftime",
    "decode_timedelta",
)
"""Arguments of xarray's own decoding."""
COORDS = ("auto", "lazy", "memory", "none")
UNREADABLE = (
    *(OSError, ValueError, TypeError, LookupError, AttributeError, NotImplementedError),
    *(ArithmeticError, ImportError),
)
"""What zarr-python and xarray raise for invalid metadata, attributes and values, and for codecs that do not load."""
MOST_LABELS = GIB
"""Bytes of stored labels that an index may read into memory."""


def reason_of(error: BaseException) -> str:
    """The first line of the message of an error, with its type where the message is only a name."""
    text = str(error).strip().partition("\n")[0][:300]
    return text if text and not isinstance(error, LookupError) else f"{type(error).__name__}: {text}".rstrip(": ")


@dataclass(frozen=True, slots=True, kw_only=True)
class AssemblyOptions:
    """How groups are opened."""

    coords: str = "auto"
    """Labels of regular axes: `lazy`, in `memory`, `auto` (lazy where there are many) or `none`."""
    dequantize: bool = False
    """Whether quantized embeddings are converted to the numbers they represent."""
    crs_index: bool = False
    """Whether grid mappings get an index of xproj, where that is installed."""
    decoding: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of xarray's own decoding, by name."""
    drop: frozenset[str] = frozenset()
    """Names of variables to leave out."""
    others: tuple[str, ...] = ()
    """Arguments that the engine has besides those of decoding, for a message."""

    def __post_init__(self) -> None:
        if self.coords not in COORDS:
            raise ValueError(f"coords must be one of {', '.join(COORDS)}, not {self.coords!r}")
        if unknown := sorted(self.decoding.keys() - set(DECODING)):
            known = ", ".join((*self.others, *DECODING))
            raise TypeError(f"this engine has no argument {', '.join(unknown)} here; its arguments are {known}")

    @property
    def decodes_coords(self) -> bool:
        """Whether arrays that CF attributes name become coordinates."""
        return self.decoding.get("decode_coords") is not False

    @property
    def lazy(self) -> bool | None:
        return {"lazy": True, "memory": False}.get(self.coords)


def dropped(names: str | Iterable[str] | None) -> frozenset[str]:
    """`drop_variables` of xarray as a set."""
    return frozenset([names] if isinstance(names, str) else names or ())


class Findings:
    """Problems found while Datasets are assembled, each once."""

    def __init__(self) -> None:
        self.findings: dict[tuple[str, str, str, str], Diagnostic] = {}
        self.without_principal: list[str] = []
        """Paths of arrays without a principal convention."""
        self.conflicts: dict[str, dict[str, str]] = {}
        """Paths of arrays that do not fit the others of their group: each reason with the new dimension name."""

    def add(self, diagnostics: Iterable[Diagnostic]) -> None:
        for finding in diagnostics:
            if finding.warns:
                self.findings[finding.code, finding.path, finding.attribute, finding.message] = finding

    def broken(self, path: str, attribute: str, reason: str, code: str = "ref.missing") -> None:
        """Note that something an array refers to could not be used."""
        self.add([Diagnostic(code, "error", path, attribute, reason)])


class ArraySource:
    """Where the assembler gets arrays from: an index, or a Zarr hierarchy. Paths are absolute."""

    computes_labels = False
    """Whether labels that a grid gives replace stored ones."""

    def __init__(self, options: AssemblyOptions) -> None:
        self.options, self.findings = options, Findings()
        self.used: set[str] = set()
        """Paths of arrays that became coordinates of others; the assembler adds to it."""

    def read(self, path: str) -> xr.Variable:
        """An array, lazy and not decoded."""
        raise NotImplementedError

    def skip(self, path: str) -> None:
        """Called for stored labels that are not needed."""

    def meaning(self, path: str, uri: str | None = None) -> Meaning | None:
        """What conventions say of an array of this store or of another one; None where there is none."""
        raise NotImplementedError

    def georeference(self, meaning: Meaning) -> Georeference | None:
        """CRS and transform for the grid mapping of an array; None where it needs no grid mapping."""
        raise NotImplementedError

    def external(self, values: External) -> xr.Variable:
        """The array that holds external values, not decoded; KeyError where there are no references."""
        raise KeyError(values.reference.path)

    def node(self, path: str, uri: str | None = None) -> Node | None:  # noqa: ARG002
        """A node of this store or of another one."""
        return None

    def from_handlers(self, path: str) -> HandlerResult | None:  # noqa: ARG002
        """What handlers of other packages add to an array; None where there are no handlers."""
        return None
