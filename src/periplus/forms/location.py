"""Open the index at a location with access to its sources, or index the files there."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from periplus.errors import MissingError
from periplus.forms.registry import is_index, open_index, recognise
from periplus.limits import Limits, given_limits
from periplus.policy import Policy, is_local

if TYPE_CHECKING:
    from periplus.fetch import Fetch
    from periplus.table import Table


class OpenedTable:
    """The table of an index, and what fetches the chunks it refers to."""

    def __init__(self, table: Table, fetch: Fetch, limits: Limits) -> None:
        self.table, self.fetch, self.limits = table, fetch, limits
        self._token = uuid.uuid4().hex

    def __dask_tokenize__(self) -> tuple[str, str]:
        """A cheap name for dask's chunks: without it, dask would pickle all rows held in memory."""
        return ("periplus.OpenedTable", self._token)

    def close(self) -> None:
        """Close connections and files; they are opened again when they are needed."""
        self.table.close()
        self.fetch.close()


def open_location(
    url: str,
    *,
    allow: str | Sequence[str] = (),
    trust: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    keep_query: str | Iterable[str] = (),
    limits: Limits | None = None,
    **options: Any,
) -> OpenedTable:
    """The index at a location, of any form. It may access its own folder and the prefixes in `allow`."""
    from periplus.fetch import Fetch
    from periplus.table import home_of

    limits = given_limits(limits)
    if not isinstance(allow, Iterable):
        raise TypeError(f"allow is a prefix of URLs, or several of them, not {allow!r}")
    allowed = (allow,) if isinstance(allow, str) else tuple(allow)
    allowed += tuple(base for base in (options.get("template_overrides") or {}).values() if base)
    policy = Policy.beside(home_of(url), allow=allowed)
    fetch = Fetch(policy=policy, storage_options=storage_options, keep_query=keep_query)
    try:
        table = open_index(url, fetch=fetch, limits=limits, allow=allowed, trust=trust, **options)
    except BaseException:
        fetch.close()
        raise
    return OpenedTable(table, fetch, limits)


def holds_index(url: str, storage_options: Mapping[str, Any] | None = None) -> bool:
    """Whether a location is an index by its content, whatever its name; costs a few requests where it is remote."""
    from periplus.fetch import Fetch

    with Fetch(storage_options=storage_options) as fetch:
        return recognise(url, fetch) is not None


def open_or_index(
    url: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
    keep_query: str | Iterable[str] = (),
    limits: Limits | None = None,
    **options: Any,
) -> OpenedTable:
    """The index at a location, or an index in memory of the files there; `options` are those of `open_location`."""
    from periplus.fetch import Fetch
    from periplus.harvest import index_into

    found = True if "document" in options else is_index(url)  # with a document, any table is an index
    if found is None:
        with Fetch(storage_options=storage_options) as fetch:
            found = is_index(url, fetch)
    if found is not False:
        return open_location(url, storage_options=storage_options, keep_query=keep_query, limits=limits, **options)
    limits = given_limits(limits)
    fetch = Fetch(storage_options=storage_options, keep_query=keep_query)
    try:
        table, _ = index_into([url], fetch=fetch, limits=limits)
    except BaseException as error:
        fetch.close()  # the traceback would keep its thread and connections alive
        # The name of a remote folder may end like that of a file.
        if isinstance(error, MissingError) and not is_local(url) and holds_index(url, storage_options):
            return open_location(url, storage_options=storage_options, keep_query=keep_query, limits=limits, **options)
        raise
    return OpenedTable(table, fetch, limits)
