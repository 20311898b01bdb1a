"""Which conventions a node declares: by uuid, then schema_url, then spec_url, never by name alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from periplus.conventions.diagnostic import Diagnostic

KEY = "zarr_conventions"
_FIELDS = ("uuid", "schema_url", "spec_url", "name", "description")
_PUBLISHED = frozenset({"spatial", "proj", "multiscales"})
"""Conventions whose schema of v0.1 fixes their name and URLs."""


@dataclass(frozen=True, slots=True)
class Convention:
    """One row of the identity table."""

    name: str
    """As we call it and, where we write it, as its schema demands."""
    uuid: str
    repositories: tuple[str, ...]
    """`owner/name` of every repository that declared URLs point into, the current one first."""
    keys: tuple[str, ...] = ()
    """Attributes that belong to it: whole names, or prefixes that end with a colon."""
    tag: str = "v1"
    """The version that we write: a tag of the repository, or its branch `main` where there is none."""
    description: str | None = None

    @property
    def schema_url(self) -> str:
        ref = self.tag if self.tag == "main" else f"refs/tags/{self.tag}"
        return f"https://raw.githubusercontent.com/{self.repositories[0]}/{ref}/schema.json"

    @property
    def spec_url(self) -> str:
        if self.tag == "main":
            return f"https://raw.githubusercontent.com/{self.repositories[0]}/main/README.md"
        return f"https://github.com/{self.repositories[0]}/blob/{self.tag}/README.md"


_TABLE = (
    Convention(
        "multiscales",
        "d35379db-88df-4056-af3a-620245f8e347",
        ("zarr-conventions/multiscales", "zarr-experimental/multiscales"),
        keys=("multiscales",),
        tag="v0.1",
        description="Multiscale layout of zarr datasets",
    ),
    Convention(
        "spatial",
        "689b58e2-cf7b-45e0-9fff-9cfc0883d6b4",
        ("zarr-conventions/spatial",),
        keys=("spatial:",),
        tag="v0.1",
        description="Spatial coordinate information",
    ),
    Convention(
        "proj",
        "f17cb550-5864-4468-aeb7-f3180cfb622f",
        ("zarr-conventions/proj", "zarr-conventions/geo-proj", "zarr-experimental/geo-proj"),
        keys=("proj:",),
        tag="v0.1",
        description="Coordinate reference system information for geospatial data",
    ),
    Convention(
        "cs",
        "e4dbf0b7-7a00-4ce6-b23e-484292014ab4",
        ("R-CF/zarr_convention_cs", "R-CF/zarr_conventions_cs"),
        keys=("cs", "crs"),
        tag="main",
    ),
    Convention(
        "ref",
        "d89b30cf-ed8c-43d5-9a16-b492f0cd8786",
        ("R-CF/zarr_convention_ref", "R-CF/zarr_conventions_ref"),
        keys=("ref",),
        tag="main",
    ),
    Convention(
        "uom",
        "3bbe438d-df37-49fe-8e2b-739296d46dfb",
        ("clbarnes/zarr-convention-uom",),
        keys=("uom",),
        description="Units of measurement for Zarr arrays",
    ),
    Convention(
        "geolocation",
        "bb9ee930-8c60-4c47-ad6b-8daa558987ed",
        ("R-CF/zarr_convention_geolocation", "R-CF/zarr_conventions_geolocation"),
        keys=("geolocation",),
        tag="main",
    ),
    Convention(
        "tessera",
        "e7f90d5f-019e-4a38-802f-9fa695e26c71",
        ("ucam-eo/zarr-convention-tessera",),
        keys=("tessera:",),
        description="Quantised geospatial embedding vectors with per-pixel dequantisation scales",
    ),
    Convention(
        "geoemb",
        "61c12cc5-0e28-4056-999a-480cf3fb7e4c",
        ("geo-embeddings/embeddings-zarr-convention",),
        keys=("geoemb:",),
    ),
    Convention(
        "dimensions",
        "6ca4454a-658a-4348-a667-b39ced0e58cb",
        ("zarr-conventions/dimensions", "zarr-conventions/coords"),
        keys=("dimensions:", "coords:"),
    ),
    Convention("CF", "77c308c7-4db2-4774-8b2d-aa37e9997db6", ("zarr-conventions/CF",)),
    Convention("dggs", "7b255807-140c-42ca-97f6-7a1cfecdbc38", ("zarr-conventions/dggs",), keys=("dggs",)),
    Convention(
        "license", "b77365e5-2b0c-4141-b917-c03b7c68e935", ("clbarnes/zarr-convention-license",), keys=("license",)
    ),
    Convention("NZ", "d0a980b5-c644-4dcc-85a1-283799a58f40", ("zarr-conventions/nz",)),
    Convention("stac", "b3703368-7e7e-4e8e-9e0e-6d0f0d5e8e8e", ("zarr-conventions/stac",), keys=("stac", "stac:")),
)
CONVENTIONS: Mapping[str, Convention] = {convention.name: convention for convention in _TABLE}
"""By name."""
_BY_UUID = {convention.uuid: convention for convention in _TABLE}
_BY_REPOSITORY = {repository.lower(): convention for convention in _TABLE for repository in convention.repositories}
_NAMES = {convention.name.lower(): convention for convention in _TABLE} | {
    "geo-proj": CONVENTIONS["proj"],
    "coords": CONVENTIONS["dimensions"],
    "nz-1.0": CONVENTIONS["NZ"],
}
_URL = re.compile(
    r"https?://(?:raw\.githubusercontent\.com|(?:www\.)?github\.com)/([\w.-]+/[\w.-]+?)(?:\.git)?"
    r"(?:/(?:refs/(?:tags|heads)/|blob/|raw/|tree/)?([\w.-]+)(?:/(.*))?)?/?",
    re.IGNORECASE,
)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConventionDeclaration:
    """One entry of `zarr_conventions`, identified or not."""

    entry: Mapping[str, Any]
    name: str | None
    """Of the convention in our table; None where the entry identifies none of them."""
    by: str | None
    """`uuid`, `schema_url` or `spec_url`."""
    tag: str | None
    """Version tag or commit in the URL, if there is one."""


def repository(url: str) -> tuple[Convention | None, str | None]:
    """The convention whose repository a URL points into, and the tag or commit it names."""
    found = _URL.fullmatch(url.strip())
    return (None, None) if found is None else (_BY_REPOSITORY.get(found[1].lower()), found[2])


def metadata(name: str) -> dict[str, str]:
    """The convention metadata object to write for a convention, as its schema demands it."""
    convention = CONVENTIONS[name]
    described = {} if convention.description is None else {"description": convention.description}
    urls = {"schema_url": convention.schema_url, "spec_url": convention.spec_url}
    return {"uuid": convention.uuid, "name": name, **urls, **described}


def declared(
    attributes: Mapping[str, Any], path: str = "/"
) -> tuple[tuple[ConventionDeclaration, ...], tuple[Diagnostic, ...]]:
    """What a node declares, and findings about the declarations."""
    notes: list[Diagnostic] = []
    raw = attributes.get(KEY)
    if raw is None:
        return (), ()
    if isinstance(raw, Mapping):
        message = f"{KEY} is an object keyed by uuid, as in drafts of 2025; it is read as a list"
        notes.append(Diagnostic("identity.object-form", "warning", path, KEY, message, "write a list of objects"))
        raw = [_upgraded(key, value) for key, value in raw.items()]
    if not isinstance(raw, list | tuple):
        message = f"{KEY} is {type(raw).__name__} and not a list; nothing is declared"
        notes.append(Diagnostic("identity.malformed", "error", path, KEY, message))
        return (), tuple(notes)
    found = [_identified(entry, path, f"{KEY}[{n}]", notes) for n, entry in enumerate(raw)]
    seen = [one.name for one in found if one is not None and one.name is not None]
    notes.extend(
        Diagnostic("identity.repeated", "warning", path, KEY, f"{name} is declared more than once")
        for name in sorted({name for name in seen if seen.count(name) > 1})
    )
    return tuple(one for one in found if one is not None), tuple(notes)


def names(entries: Iterable[ConventionDeclaration]) -> frozenset[str]:
    """The conventions of our table among declared entries."""
    return frozenset(entry.name for entry in entries if entry.name is not None)


def belongs(key: str, name: str) -> bool:
    """Whether an attribute is one of a convention's."""
    return any(key.startswith(own) if own.endswith(":") else key == own for own in CONVENTIONS[name].keys)


def _upgraded(key: Any, value: Any) -> dict[str, Any]:
    entry = dict(value) if isinstance(value, Mapping) else {}
    kept = {field: entry[field] for field in _FIELDS if field in entry}
    if "schema" in entry:
        kept.setdefault("schema_url", entry["schema"])
    return {"uuid": str(key).lower(), **kept}


def _identified(entry: Any, path: str, where: str, notes: list[Diagnostic]) -> ConventionDeclaration | None:
    def note(code: str, severity: Any, message: str, hint: str = "") -> None:
        notes.append(Diagnostic(f"identity.{code}", severity, path, where, message, hint))

    if not isinstance(entry, Mapping):
        note("malformed", "error", f"an entry is an object, not {type(entry).__name__}")
        return None
    texts = {field: entry[field] for field in _FIELDS if isinstance(entry.get(field), str) and entry[field]}
    for field in entry:
        if field not in _FIELDS:
            note("extra-field", "info", f"the field {str(field)[:80]!r} is not defined by the framework")
        elif field not in texts:
            note("malformed", "warning", f"{field} is not a string and is ignored")
    by_url: dict[str, tuple[Convention | None, str | None]] = {
        field: repository(texts[field]) for field in ("schema_url", "spec_url") if field in texts
    }
    tag = next((tag for _, tag in by_url.values() if tag), None)
    chosen, by = _chosen(texts.get("uuid"), {field: convention for field, (convention, _) in by_url.items()}, note)
    if chosen is None:
        _unknown(texts, by_url, note)
        return ConventionDeclaration(entry=entry, name=None, by=None, tag=tag)
    _about_urls(chosen, texts, by_url, note)
    _about_name(chosen, texts.get("name", ""), note)
    return ConventionDeclaration(entry=entry, name=chosen.name, by=by, tag=tag)


def _chosen(uuid: str | None, by_url: Mapping[str, Convention | None], note: Any) -> tuple[Convention | None, str]:
    """The convention of an entry, and the field that identifies it: the uuid if there is one, else a known URL."""
    if uuid is not None:
        if not _UUID.fullmatch(uuid):
            note("uuid-form", "warning", f"{uuid[:80]!r} is not a uuid in lower-case hexadecimal")
        return _BY_UUID.get(uuid.strip().lower()), "uuid"
    for field, convention in by_url.items():
        # The first field decides; an unknown URL is skipped.
        if convention is not None:
            note("no-uuid", "info", f"{convention.name} is declared without its uuid", f"add {convention.uuid}")
            return convention, field
    return None, ""


def _about_name(chosen: Convention, name: str, note: Any) -> None:
    if name and _NAMES.get(name.rstrip(":").lower()) is not chosen:
        note("name", "info", f"the name {name[:80]!r} is not that of {chosen.name}; names do not identify")
    elif name and name != chosen.name and chosen.name in _PUBLISHED:
        hint = f"the schema of v0.1 demands {chosen.name!r}"
        note("name", "info", f"the name {name!r} is that of older drafts", hint)


def _unknown(texts: Mapping[str, str], by_url: Mapping[str, Any], note: Any) -> None:
    if not texts.keys() & {"uuid", "schema_url", "spec_url"}:
        name = texts.get("name", "")
        hint = ""
        if (known := _NAMES.get(name.rstrip(":").lower())) is not None:
            hint = f"if it is {known.name}, add its uuid {known.uuid}"
        note("name-only", "warning", f"an entry without uuid or URL identifies nothing (name {name[:80]!r})", hint)
    elif "uuid" in texts:
        known = next((convention for convention, _ in by_url.values() if convention is not None), None)
        also = "" if known is None else f", though its URL is that of {known.name}"
        severity = "info" if known is None else "warning"
        note("unknown", severity, f"the uuid {texts['uuid'][:80]!r} is of no convention we know{also}")
    else:
        url = next(texts[field] for field in ("schema_url", "spec_url") if field in texts)
        note("unknown-url", "warning", f"the URL {url[:200]!r} is of no convention we know")


def _about_urls(chosen: Convention, texts: Mapping[str, str], by_url: Mapping[str, Any], note: Any) -> None:
    published = chosen.name in _PUBLISHED
    for field, (convention, tag) in by_url.items():
        current = chosen.schema_url if field == "schema_url" else chosen.spec_url
        if texts[field] == current:
            continue
        if convention is None:
            if field == "spec_url" and chosen.name == "CF":
                continue  # CF's own pages
            note("unknown-url", "warning", f"{field} {texts[field][:200]!r} was never a URL of {chosen.name}", "")
        elif convention is not chosen:
            note("conflict", "warning", f"{field} is that of {convention.name}, the identity that of {chosen.name}")
        elif published:
            hint = f"the current one is {current}"
            note("old-url", "info", f"{field} points to {tag or 'no tag'} of an older or moved document", hint)
