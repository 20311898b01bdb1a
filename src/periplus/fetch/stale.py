"""Is an object still what was indexed: the index's facts against those of a response."""

from __future__ import annotations

from periplus.errors import StaleError
from periplus.model import Source
from periplus.policy import is_local


def strong(etag: str | None) -> str | None:
    """The entity tag where If-Match may carry it; a weak one never matches there."""
    return None if etag is None or etag.startswith(("W/", "w/")) else etag


def check_same(expect: Source, found: Source, *, offset: int | None = None) -> None:
    """StaleError where size, entity tag or (without tags) modification time differ. Unknown facts are not compared."""
    if expect.size is not None and found.size is not None and expect.size != found.size:
        raise StaleError(
            f"the object had {expect.size} bytes when it was indexed and has {found.size} now",
            url=expect.url,
            offset=offset,
        )
    if expect.etag is not None and found.etag is not None:
        if _tag(expect.etag) != _tag(found.etag):
            raise StaleError("the object changed after it was indexed (entity tag)", url=expect.url, offset=offset)
        return
    then, now = expect.last_modified, found.last_modified
    if then is not None and now is not None:
        if not is_local(expect.url):  # HTTP dates have whole seconds
            then, now = then.replace(microsecond=0), now.replace(microsecond=0)
        if then != now:
            raise StaleError(
                f"the object was last modified at {then.isoformat()} when it was indexed, and at {now.isoformat()} now",
                url=expect.url,
                offset=offset,
            )


def _tag(etag: str) -> str:
    return etag.removeprefix("W/").strip('"')
