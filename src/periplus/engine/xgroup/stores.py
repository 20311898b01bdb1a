"""Open stores with zarr-python: the one that a user names, and those it refers to, if the policy allows them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeAlias

import zarr
from zarr.core.sync import sync
from zarr.storage._common import make_store_path

from periplus.conventions.node import ROOT, NodeLookup, join
from periplus.engine.assemble.source import UNREADABLE
from periplus.engine.index.array import OpenIndex
from periplus.engine.index.backend import ALREADY_OPEN
from periplus.engine.xgroup.hierarchy import ZarrHierarchy
from periplus.engine.xgroup.warnings import XGroupPathError, XGroupReferenceError
from periplus.errors import DeniedError, FetchError, FormatError, PeriplusError, redact
from periplus.fetch import Fetch
from periplus.forms import is_index
from periplus.forms.location import holds_index, open_location
from periplus.policy import ALLOW_VARIABLE, Policy, canonical, is_local, resolve
from periplus.zarr.fetchstore import FetchStore
from periplus.zarr.store.store import IndexStore

CrossStore: TypeAlias = "bool | str | Iterable[str] | Policy | None"
StorageOptions: TypeAlias = "Mapping[str, Any] | None"


def open_hierarchy(
    what: Any,
    *,
    group: str | None = None,
    opening: Mapping[str, Any] | None = None,
    consolidated: bool | None = None,
    zarr_format: int | None = None,
    fill_as_mask: bool | None = None,
) -> tuple[ZarrHierarchy, str]:
    """The hierarchy of anything that zarr-python opens, or of an index, and the absolute path of the group in it.

    `opening` are options of `periplus.open`; a store that is no index has `storage_options` only.
    """
    store, url, inside = _store(what, dict(opening or {}))
    try:
        path = join(join(ROOT, inside), (group or "").strip("/"))
    except FormatError as error:
        raise XGroupPathError(f"group: {error.message}") from None
    options = (opening or {}).get("storage_options") if isinstance(store, str) else None
    hierarchy_of = partial(
        ZarrHierarchy,
        group=path,
        url=url,
        zarr_format=zarr_format,
        consolidated=consolidated,
        fill_as_mask=fill_as_mask,
        owned=isinstance(what, str | os.PathLike),
    )
    try:
        hierarchy = hierarchy_of(_place(store, options))
    except (FileNotFoundError, ImportError) as error:
        # The name of a remote index may not tell; zarr-python may lack the library for its store.
        if isinstance(store, str) and not is_local(store) and holds_index(store, options):
            hierarchy = hierarchy_of(_place(_index_store(open_location(store, storage_options=options))))
        elif isinstance(error, ImportError):
            raise
        else:
            shown = redact(store) if isinstance(store, str) else str(store)
            raise FileNotFoundError(f"no Zarr group at {shown}") from None  # that of zarr may show secrets
    if hierarchy.is_group(path):
        return hierarchy, path
    there = hierarchy.documents(path) is not None
    for close in hierarchy.closers():
        close()
    reason = (
        f"{path} is an array, not a group; open the group that contains it"
        if there
        else f"no group {path} in this store"
    )
    raise XGroupReferenceError(reason, url=url)


def _store(what: Any, opening: dict[str, Any]) -> tuple[Any, str | None, str]:
    """What zarr-python opens, the URL of the store if it has one, and the path of the given group."""
    text = os.fspath(what) if isinstance(what, str | os.PathLike) else None
    if text is not None and is_local(text) and text[:5].lower() != "file:":
        text = os.path.abspath(os.path.expanduser(text))
    of_index = sorted(opening.keys() - {"storage_options"})
    if text is not None:
        # With a document any table is an index.
        found = True if "document" in opening else is_index(text)
        found = found or (bool(of_index) and not is_local(text) and holds_index(text, opening.get("storage_options")))
        if found:
            return _index_store(open_location(text, **opening)), text, ""
    if of_index:
        reason = ALREADY_OPEN if isinstance(what, OpenIndex) else "this store is not an index"
        raise TypeError(f"options for opening an index ({', '.join(of_index)}) have no effect: {reason}")
    if text is not None:
        return text, text, ""
    if isinstance(what, OpenIndex) and not isinstance(what, IndexStore):
        return _index_store(what), what.table.url, ""
    if isinstance(what, zarr.Group):
        return what.store, _url(what.store), what.path
    return what, _url(what), ""


def _index_store(index: OpenIndex) -> IndexStore:
    return IndexStore(index.table, index.fetch, limits=index.limits, codecs="none")


def _url(store: Any) -> str | None:
    """The URL of a store object, where it has one."""
    if isinstance(store, zarr.storage.LocalStore):
        return str(store.root)
    if isinstance(store, zarr.storage.FsspecStore):
        with contextlib.suppress(*UNREADABLE):
            return str(store.fs.unstrip_protocol(store.path))
    return None


def _place(store: Any, options: StorageOptions = None) -> zarr.storage.StorePath:
    """The root of what zarr-python opens."""
    return sync(make_store_path(store, mode="r", storage_options=None if options is None else dict(options)))


class CrossStores:
    """Other stores that references point to, each opened once, if the policy allows it."""

    def __init__(self, base: str | None, *, allowed: CrossStore = None, storage_options: StorageOptions = None) -> None:
        self.base = _canonical_url(base)
        self.options = {_folder(prefix): dict(value or {}) for prefix, value in (storage_options or {}).items()}
        self.policy = _policy(self.base, allowed, storage_options or {})
        self._open: dict[str, ZarrHierarchy | PeriplusError] = {}
        self._fetch: Fetch | None = None

    def __call__(self, uri: str) -> NodeLookup:
        return self.hierarchy(uri).lookup

    def hierarchy(self, uri: str) -> ZarrHierarchy:
        """The store at a URI; DeniedError or FetchError where it cannot be opened."""
        if uri not in self._open:
            try:
                self._open[uri] = self._opened(uri)
            except PeriplusError as error:
                self._open[uri] = error
        found = self._open[uri]
        if isinstance(found, PeriplusError):
            raise found
        return found

    def _opened(self, uri: str) -> ZarrHierarchy:
        try:
            plain = self.policy.check(self._absolute(uri))
        except DeniedError as error:
            hint = "to allow it, pass cross_store=[prefix]"
            raise DeniedError(f"access is not allowed ({error.message.partition(';')[0]}); {hint}", url=uri) from None
        try:
            return ZarrHierarchy(_place(plain if is_local(plain) else FetchStore(plain, self._fetcher())), url=plain)
        except PeriplusError:
            raise
        except UNREADABLE as error:
            reason = "there is no Zarr group" if isinstance(error, FileNotFoundError) else str(error)[:300]
            raise FetchError(reason, url=plain) from error

    def _absolute(self, uri: str) -> str:
        if self.base is not None:
            return resolve(self.base, uri)
        if "://" not in uri and not uri.startswith("/"):
            raise DeniedError("a relative URI needs a store that has a URL", url=uri)
        return canonical(uri)

    def _fetcher(self) -> Fetch:
        if self._fetch is None:
            # With the policy, so that it also applies to redirects.
            self._fetch = Fetch(policy=_of_folders(self.policy), storage_options=self.options)
        return self._fetch

    def closers(self) -> list[Callable[[], None]]:
        """Functions that close everything that was opened."""
        opened = [found for found in self._open.values() if isinstance(found, ZarrHierarchy)]
        fetches = [] if self._fetch is None else [self._fetch.close]
        return [close for found in opened for close in found.closers()] + fetches


def _policy(base: str | None, allowed: CrossStore, options: Mapping[str, Any]) -> Policy:
    """The folder that contains the store, what the user allows, and prefixes the user gave options for."""
    if isinstance(allowed, Policy):
        return allowed
    if allowed is True:
        return Policy.everything()
    if allowed is False:
        return Policy(())
    named = [allowed] if isinstance(allowed, str) else list(allowed or ())
    named += [str(prefix) for prefix in options]
    entries = [form for entry in named for form in _prefixes(entry)]
    if base is None:
        allowed_by_all = [form for entry in os.environ.get(ALLOW_VARIABLE, "").split() for form in _prefixes(entry)]
        return Policy(tuple(dict.fromkeys([*entries, *allowed_by_all])))
    # Without a slash at its end, so that the folder that contains the store is allowed.
    return Policy.beside(base.rstrip("/") or base, allow=entries)


def _canonical_url(base: str | None) -> str | None:
    """The URL of a store in canonical form; None for chained and unsupported URLs, which allow no other store."""
    try:
        return None if base is None else canonical(base)
    except DeniedError:
        return None


def _prefixes(entry: str) -> tuple[str, ...]:
    """The prefixes that allow a store and everything in it; a bare `s3://` stays as it is."""
    if entry.endswith("://"):
        return (entry,)
    plain = canonical(entry)
    return (plain,) if plain.endswith("/") else (plain, plain + "/")


def _folder(prefix: str) -> str:
    return prefix if prefix.endswith("/") or "://" not in prefix else prefix + "/"


def _of_folders(policy: Policy) -> Policy:
    if policy.prefixes is None:
        return policy
    return Policy(tuple(form for prefix in policy.prefixes for form in _prefixes(prefix)))
