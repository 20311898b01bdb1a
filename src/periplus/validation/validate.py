"""Validate a store or an index: report findings, and repair what is safe to repair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from periplus.conventions.diagnostic import SEVERITIES, Diagnostic, Severity
from periplus.errors import MissingError
from periplus.forms import UnknownOptionError, is_index, recognise
from periplus.parse.zarr.documents import ZARR_JSON, key_of
from periplus.policy import canonical, is_local
from periplus.validation.checks import StoreMeaning, understand_all
from periplus.validation.documents import StoreDocuments, of_keys, read_documents, read_group
from periplus.validation.profiles import PROFILES
from periplus.validation.repair import changes, repaired, write_changes
from periplus.validation.report import Repair, ValidationReport, ordered

if TYPE_CHECKING:
    from periplus.facade import Index
    from periplus.fetch import Fetch


def validate(
    store: str | PathLike[str] | Index | Any,
    *,
    profile: str = "spec",
    fail_on: Severity = "error",
    deep: bool = False,
    fix: bool = False,
    dry_run: bool = False,
    allow: Sequence[str] = (),
    trust: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> ValidationReport:
    """Check the conventions of a whole Zarr store or index, from its metadata alone.

    `store` is a path or URL of either, an Index, or what zarr-python opens. `profile` is one of `spec`, `gdal`, `eopf`
    and `embeddings`. The report is `ok` if no finding is as severe as `fail_on`: `error`, `warning` or `info`. With
    `deep`, samples of the values are compared between the levels of pyramids. With `fix`, what is safe to repair is
    written back (`dry_run` only lists it); the report is then that of the repaired store. `allow`, `trust` and further
    options are those of `periplus.open`, for indexes.
    """
    from periplus import entry
    from periplus.fetch import Fetch

    if profile not in PROFILES:
        raise ValueError(f"a profile is one of {', '.join(PROFILES)}, not {profile!r}")
    if fail_on not in SEVERITIES:
        raise ValueError(f"fail_on= is one of {', '.join(reversed(SEVERITIES))}, not {fail_on!r}")
    if store is None:
        raise TypeError("a store is a path or URL, an Index, or what zarr opens, not None")
    if dry_run and not fix:
        raise ValueError("dry_run= has no effect without fix=True, whose changes it lists")
    url = canonical(fspath(store)).rstrip("/") if isinstance(store, str | PathLike) else None
    opening = {"allow": tuple(allow), "trust": trust, "storage_options": storage_options, **options}
    if url is not None and (is_index(url) or (options and not is_local(url))):
        store = entry.open(url, **opening)
    elif options:
        raise UnknownOptionError(list(options), [], "validating a Zarr store, which is not an index")
    with Fetch(storage_options=storage_options) as fetch:
        try:
            hierarchy, opener = _opened(store, url, fetch)
        except MissingError:
            if url is None or is_local(url) or recognise(url, fetch) is None:
                raise
            hierarchy, opener = _opened(entry.open(url, **opening), url, fetch)  # its name did not tell
        understood = understand_all(hierarchy)
        after, repairs = repaired(understood)
        if fix and not dry_run and repairs:
            if url is None or opener is not None:
                raise ValueError("fix= repairs only a Zarr store that is given by its path or URL")
            write_changes(url, changes(hierarchy, after), fetch)
            understood = understand_all(read_documents(url, fetch))
        report = _report(
            understood, profile, repairs, fixed=fix and not dry_run, deep=deep, opener=opener, url=url, fetch=fetch
        )
    return replace(report, fail_on=fail_on)


def _opened(store: Any, url: str | None, fetch: Fetch) -> tuple[StoreDocuments, Any]:
    """The metadata, and what zarr-python opens if that is not the URL."""
    from periplus.facade import Index

    if isinstance(store, Index):
        held = store.store()
        return of_keys({key_of(path, ZARR_JSON): one for path, one in held.layout.documents.items()}, url=url), held
    if url is not None:
        return read_documents(url, fetch), None
    import zarr

    try:
        root = store if isinstance(store, zarr.Group) else zarr.open_group(store, mode="r")
    except FileNotFoundError as error:
        raise MissingError("there is no Zarr group") from error
    except TypeError as error:
        raise TypeError(f"a store is a path or URL, an Index, or what zarr opens, not {store!r:.80}") from error
    return read_group(root), root


def _report(
    understood: StoreMeaning,
    profile: str,
    repairs: tuple[Repair, ...],
    *,
    fixed: bool,
    deep: bool,
    opener: Any,
    url: str | None,
    fetch: Fetch,
) -> ValidationReport:
    rules = PROFILES[profile]
    findings = [replace(one, severity=rules.severities.get(one.code, one.severity)) for one in understood.findings]
    for check in rules.checks:
        findings += check(understood)
    if deep:
        findings += _deep(understood, opener, url, fetch)
    return ValidationReport(
        url=url,
        profile=profile,
        groups=len(understood.groups),
        arrays=len(understood.arrays),
        conventions=dict(Counter(understood.declared).most_common()),
        findings=ordered(findings),
        repairs=repairs,
        fixed=fixed,
    )


def _deep(understood: StoreMeaning, opener: Any, url: str | None, fetch: Fetch) -> list[Diagnostic]:
    import zarr

    from periplus.validation.deep import look
    from periplus.zarr.fetchstore import FetchStore

    what = opener
    if opener is None and url is not None:
        what = url if is_local(url) else FetchStore(url, fetch)
    root = what if isinstance(what, zarr.Group) else zarr.open_group(what, mode="r", use_consolidated=False)
    return list(look(understood, root))
