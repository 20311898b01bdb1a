"""Options that several verbs share: access to sources, boxes, times and windows."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from periplus.errors import PeriplusError

if TYPE_CHECKING:
    from periplus import Index

    Param = click.ParamType[Any]
else:
    Param = click.ParamType  # older versions of click cannot be subscripted

Command = TypeVar("Command", bound=Callable[..., Any])
LISTS = (".parquet", ".parq", ".pq", ".geoparquet", ".json", ".txt")
"""Extensions of lists of files, which verbs for one file do not index."""
_FILE = re.compile(r"\.[a-z][a-z0-9]*$", re.IGNORECASE)


class BBox(Param):
    """Four numbers: xmin,ymin,xmax,ymax."""

    name = "xmin,ymin,xmax,ymax"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        try:
            xmin, ymin, xmax, ymax = (float(part) for part in value.split(","))
        except ValueError:
            self.fail(f"{value!r} is not four numbers xmin,ymin,xmax,ymax", param, ctx)
        if not (xmin < xmax and ymin < ymax):
            self.fail(f"{value!r} is empty: xmin < xmax and ymin < ymax must hold", param, ctx)
        return xmin, ymin, xmax, ymax


class Time(Param):
    """A moment or a period, or two joined by a slash; `..` is an open end."""

    name = "moment|start/end"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        ends = tuple(end.strip() or ".." for end in value.split("/"))
        if len(ends) > 2 or all(end == ".." for end in ends) or not all(end == ".." or _moment(end) for end in ends):
            self.fail(
                f"{value!r} is not a time such as 2021, 2021-06, 2021-06-01, 2021-06-01T10:00 or 2021-06/..", param, ctx
            )
        return ends[0] if len(ends) == 1 else ends


def _moment(text: str) -> bool:
    """Whether the text is a year, a month, or ISO 8601 as Python parses it."""
    try:
        datetime.fromisoformat(text + {4: "-01-01", 7: "-01"}.get(len(text), ""))
    except ValueError:
        return False
    return True


class Window(Param):
    """Ranges start:stop of the last dimensions, joined by commas."""

    name = "y0:y1,x0:x1"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        try:
            ranges = tuple((int(a), int(b)) for a, b in (part.split(":") for part in value.split(",")))
        except ValueError:
            self.fail(f"{value!r} is not ranges such as 0:512,1024:1536", param, ctx)
        if any(not 0 <= start < stop for start, stop in ranges):
            self.fail(f"{value!r} is empty or negative: 0 <= start < stop must hold", param, ctx)
        return ranges


class Pair(Param):
    """key=value."""

    name = "key=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        key, equals, text = value.partition("=")
        if not (key and equals):
            # The value may be a secret, so it is not repeated.
            self.fail("expected key=value", param, ctx)
        return key, text


class Numbers(Param):
    """One or two positive numbers joined by a comma."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            numbers = tuple(float(part) for part in value.split(","))
        except ValueError:
            numbers = ()
        if len(numbers) not in (1, 2) or not all(number > 0 for number in numbers):
            self.fail(f"{value!r} is not a positive number, nor two joined by a comma", param, ctx)
        return numbers[0] if len(numbers) == 1 else numbers


def access(command: Command) -> Command:
    """Options of every verb that opens an index."""
    for option in (
        click.option(
            "--trust", is_flag=True, help="Allow opening a .duckdb file. Use this only for files from people you trust."
        ),
        click.option(
            "--allow",
            multiple=True,
            metavar="PREFIX",
            help="Allow the index to access sources under this prefix, besides those in its own folder. Repeatable.",
        ),
        click.option(
            "--template",
            multiple=True,
            type=Pair(),
            expose_value=False,
            callback=_keep_templates,
            help="Value of a template in kerchunk references, for example base=s3://bucket/. Repeatable.",
        ),
        keep_query,
        storage_option,
    ):
        command = option(command)
    return command


SPELLED = {"template_overrides": "--template"}
"""Options whose name is not that of the argument."""
TEMPLATES = "periplus.templates"
KEPT = "periplus.keep_query"


def _keep_templates(ctx: click.Context, param: click.Parameter, value: Sequence[tuple[str, str]]) -> None:  # noqa: ARG001
    """Stored in the context, where `open_index` finds them."""
    ctx.meta[TEMPLATES] = dict(value)


def _keep_names(ctx: click.Context, param: click.Parameter, value: Sequence[str]) -> None:  # noqa: ARG001
    ctx.meta[KEPT] = tuple(value)


keep_query = click.option(
    "--keep-query",
    multiple=True,
    metavar="NAME",
    expose_value=False,
    callback=_keep_names,
    help="A query parameter of URLs that is not secret and may be stored in the index. Repeatable.",
)


def kept_names() -> tuple[str, ...]:
    """The values of --keep-query."""
    names: tuple[str, ...] = click.get_current_context().meta.get(KEPT, ())
    return names


storage_option = click.option(
    "--storage-option",
    "storage_options",
    multiple=True,
    type=Pair(),
    help="A setting of the object store or server, for example region=eu-central-1, anon=true or headers.NAME=VALUE. "
    "Repeatable.",
)


def open_index(url: str, *, allow: Sequence[str], trust: bool, storage_options: Sequence[tuple[str, str]]) -> Index:
    """The index at `url`, opened with the shared options."""
    import periplus

    templates = click.get_current_context().meta.get(TEMPLATES)
    more: dict[str, Any] = {"template_overrides": templates} if templates else {}
    more["keep_query"] = kept_names()
    with usage_errors(("template_overrides",)):
        return periplus.open(url, allow=tuple(allow), trust=trust, storage_options=settings(storage_options), **more)


def open_any(url: str, *, allow: Sequence[str], trust: bool, storage_options: Sequence[tuple[str, str]]) -> Index:
    """The index at `url`, or the index of the one file there."""
    import periplus
    from periplus.forms import is_index

    absent = None
    is_file = os.path.isfile(url) or (_FILE.search(url.partition("?")[0]) and not os.path.isdir(url))
    if is_file and not url.lower().endswith(LISTS) and not is_index(url):
        try:
            return periplus.index(url, storage_options=settings(storage_options), keep_query=kept_names())
        except periplus.MissingError as error:
            absent = error  # it may be an index in an object store, where folders are only prefixes
    try:
        return open_index(url, allow=allow, trust=trust, storage_options=storage_options)
    except periplus.MissingError as error:
        raise absent or error from None


def settings(pairs: Sequence[tuple[str, str]]) -> dict[str, Any] | None:
    """Storage options as a dictionary; `headers.Authorization` becomes an entry of `headers`."""
    chosen: dict[str, Any] = {}
    for key, text in pairs:
        outer, dot, inner = key.partition(".")
        if dot:
            chosen.setdefault(outer, {})[inner] = text
        else:
            chosen[key] = text
    return chosen or None


@contextlib.contextmanager
def usage_errors(options: Sequence[str] = ()) -> Iterator[None]:
    """Report wrong arguments of the library as usage errors; `options` are names of those that the verb has."""
    from periplus.cli.app import in_cli_words
    from periplus.forms import UnknownOptionError

    try:
        yield
    except PeriplusError:
        raise
    except UnknownOptionError as error:
        error.valid = [name for name in error.valid if name in options]
        raise click.UsageError(error.message(lambda name: SPELLED.get(name, f"--{name.replace('_', '-')}"))) from error
    except ValueError as error:
        raise click.UsageError(in_cli_words(str(error))) from error
