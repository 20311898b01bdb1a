"""Open stores: the one a user names by zarr-python, and those it refers to under a policy."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import zarr
from zarr.core.group import GroupMetadata

from periplus import facade
from periplus.conventions.node import ROOT, Lookup, join
from periplus.engine.xgroup.nodes import UNREADABLE, Hierarchy
from periplus.engine.xgroup.problems import XGroupPathError, XGroupReferenceError
from periplus.errors import DeniedError, FetchError, FormatError, PeriplusError, redact
from periplus.fetch import Fetch
from periplus.forms import is_index
from periplus.policy import ALLOW_VARIABLE, Policy, canonical, is_local, resolve
from periplus.zarr.fetchstore import FetchStore

CrossStore: TypeAlias = "bool | str | Iterable[str] | Policy | None"
Options: TypeAlias = "Mapping[str, Any] | None"


def open_hierarchy(
    what: Any,
    *,
    group: str | None = None,
    storage_options: Options = None,
    consolidated: bool | None = None,
    zarr_format: int | None = None,
    fill_as_mask: bool | None = None,
) -> tuple[Hierarchy, str]:
    """The hierarchy of whatever zarr-python opens, or of an index; and the absolute path of the group meant in it."""
    store, url, inside = _store(what, storage_options)
    try:
        path = join(join(ROOT, inside), (group or "").strip("/"))
    except FormatError as error:
        raise XGroupPathError(f"group: {error.message}") from None
    options = storage_options if isinstance(store, str) else None
    root = _root(store, path, consolidated=consolidated, zarr_format=zarr_format, storage_options=options)
    hierarchy = Hierarchy(root, url=url, fill_as_mask=fill_as_mask, owned=isinstance(what, str | os.PathLike))
    if hierarchy.is_group(path):
        return hierarchy, path
    there = hierarchy.metadata(path) is not None
    for ending in hierarchy.endings():
        ending()
    reason = (
        f"{path} is an array, not a group; open the group it lies in" if there else f"no group {path} in this store"
    )
    raise XGroupReferenceError(reason, url=url)


def _store(what: Any, storage_options: Options) -> tuple[Any, str | None, str]:
    """What to hand to zarr-python, the URL of the store where it has one, and the path of the group given."""
    if isinstance(what, facade.Index):
        return what.store(codecs="none"), what.table.url, ""
    if isinstance(what, zarr.Group):
        return what.store, _url(what.store), what.path
    if isinstance(what, str | os.PathLike):
        text = os.fspath(what)
        if is_local(text) and text[:5].lower() != "file:":
            text = os.path.abspath(os.path.expanduser(text))
        if is_index(text):
            index = facade.open(text, storage_options=storage_options)
            return index.store(codecs="none"), text, ""
        return text, text, ""
    return what, _url(what), ""


def _url(store: Any) -> str | None:
    """Where a store object lies, as far as it tells."""
    if isinstance(store, zarr.storage.LocalStore):
        return str(store.root)
    if isinstance(store, zarr.storage.FsspecStore):
        with contextlib.suppress(*UNREADABLE):
            return str(store.fs.unstrip_protocol(store.path))
    return None


def _root(store: Any, path: str, *, consolidated: bool | None, **options: Any) -> zarr.Group:
    try:
        return zarr.open_group(store, mode="r", use_consolidated=consolidated, **options)
    except FileNotFoundError as error:
        # Some writers leave the root without metadata; groups below may still be there.
        with contextlib.suppress(FileNotFoundError):
            found = zarr.open_group(store, mode="r", path=path.strip("/"), use_consolidated=False, **options)
            metadata = GroupMetadata(zarr_format=found.metadata.zarr_format)
            place = zarr.storage.StorePath(found.store, "")
            return zarr.Group(zarr.AsyncGroup(metadata=metadata, store_path=place))
        shown = redact(store) if isinstance(store, str) else str(store)
        raise FileNotFoundError(f"no Zarr group at {shown}") from error


class CrossStores:
    """Other stores that references lead to, opened once each, if policy allows."""

    def __init__(self, base: str | None, *, allowed: CrossStore = None, storage_options: Options = None) -> None:
        self.base = _addressed(base)
        self.options = {_folder(prefix): dict(value or {}) for prefix, value in (storage_options or {}).items()}
        self.policy = _policy(self.base, allowed, storage_options or {})
        self._open: dict[str, Hierarchy | PeriplusError] = {}
        self._fetch: Fetch | None = None

    def __call__(self, uri: str) -> Lookup:
        return self.hierarchy(uri).lookup

    def hierarchy(self, uri: str) -> Hierarchy:
        """The store at a URI; DeniedError or FetchError where there is no way to it."""
        if uri not in self._open:
            try:
                self._open[uri] = self._opened(uri)
            except PeriplusError as error:
                self._open[uri] = error
        found = self._open[uri]
        if isinstance(found, PeriplusError):
            raise found
        return found

    def _opened(self, uri: str) -> Hierarchy:
        try:
            plain = self.policy.check(self._absolute(uri))
        except DeniedError as error:
            hint = "if you trust it, pass cross_store=[prefix]"
            raise DeniedError(f"policy forbids it ({error.message.partition(';')[0]}); {hint}", url=uri) from None
        try:
            if is_local(plain):
                root = zarr.open_group(plain, mode="r")
            else:
                root = zarr.open_group(FetchStore(plain, self._fetcher()), mode="r")
        except PeriplusError:
            raise
        except UNREADABLE as error:
            reason = "no Zarr group there" if isinstance(error, FileNotFoundError) else str(error)[:300]
            raise FetchError(reason, url=plain) from error
        return Hierarchy(root, url=plain)

    def _absolute(self, uri: str) -> str:
        if self.base is not None:
            return resolve(self.base, uri)
        if "://" not in uri and not uri.startswith("/"):
            raise DeniedError("a relative address needs a store that has one", url=uri)
        return canonical(uri)

    def _fetcher(self) -> Fetch:
        if self._fetch is None:
            # The policy goes along, so that a redirect leads nowhere a reference may not.
            self._fetch = Fetch(policy=_of_folders(self.policy), storage_options=self.options)
        return self._fetch

    def endings(self) -> list[Callable[[], None]]:
        """What closes all that was opened, holding on to nothing else."""
        opened = [found for found in self._open.values() if isinstance(found, Hierarchy)]
        fetches = [] if self._fetch is None else [self._fetch.close]
        return [ending for found in opened for ending in found.endings()] + fetches


def _policy(base: str | None, allowed: CrossStore, options: Mapping[str, Any]) -> Policy:
    """The folder the store lies in, what the user allows, and places the user gave options for."""
    if isinstance(allowed, Policy):
        return allowed
    if allowed is True:
        return Policy.everything()
    if allowed is False:
        return Policy(())
    named = [allowed] if isinstance(allowed, str) else list(allowed or ())
    named += [str(prefix) for prefix in options]
    entries = [form for entry in named for form in _forms(entry)]
    if base is None:
        allowed_by_all = [form for entry in os.environ.get(ALLOW_VARIABLE, "").split() for form in _forms(entry)]
        return Policy(tuple(dict.fromkeys([*entries, *allowed_by_all])))
    return Policy.beside(_lying(base), allow=entries)


def _addressed(base: str | None) -> str | None:
    """The address of a store if it is one that policy can compare; chained and exotic ones have no neighbours."""
    try:
        return None if base is None else canonical(base)
    except DeniedError:
        return None


def _lying(base: str) -> str:
    """A store's URL without its closing slash: stores beside it are its neighbours, not its members."""
    return base.rstrip("/") or base


def _forms(entry: str) -> tuple[str, ...]:
    """An allowed store is allowed with all that lies in it; a bare `s3://` stays what the policy makes of it."""
    if entry.endswith("://"):
        return (entry,)
    plain = canonical(entry)
    return (plain,) if plain.endswith("/") else (plain, plain + "/")


def _folder(prefix: str) -> str:
    return prefix if prefix.endswith("/") or "://" not in prefix else prefix + "/"


def _of_folders(policy: Policy) -> Policy:
    if policy.prefixes is None:
        return policy
    return Policy(tuple(form for prefix in policy.prefixes for form in _forms(prefix)))
