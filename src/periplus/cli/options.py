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


class TextParam(Param):
    """A parameter that `parse` makes of text; its ValueError explains what is wrong."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def parse(self, text: str) -> Any:
        raise NotImplementedError


def parse_floats(text: str, counts: Sequence[int], expected: str) -> tuple[float, ...]:
    """Numbers joined by commas, as many as one of `counts`."""
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) not in counts:
        raise ValueError(f"{text!r} is not {expected}")
    return numbers


class BBox(TextParam):
    """Four numbers: xmin,ymin,xmax,ymax."""

    name = "xmin,ymin,xmax,ymax"

    def parse(self, text: str) -> Any:
        xmin, ymin, xmax, ymax = bbox = parse_floats(text, [4], f"four numbers {self.name}")
        if not (xmin < xmax and ymin < ymax):
            raise ValueError(
                f"{text!r} is empty: xmin < xmax and ymin < ymax must hold (for the pixel at a point, use --point)"
            )
        return bbox


class Point(TextParam):
    """Two numbers: x,y."""

    name = "x,y"

    def parse(self, text: str) -> Any:
        return parse_floats(text, [2], f"two numbers {self.name}")


def box_of(bbox: tuple[float, ...] | None, point: tuple[float, ...] | None) -> tuple[float, ...] | None:
    """The box of --bbox, or that of --point, which has no area."""
    if bbox is not None and point is not None:
        raise click.UsageError("--point and --bbox cannot be combined.")
    return bbox if point is None else (*point, *point)


class Time(TextParam):
    """A moment or a period, or two joined by a slash; `..` is an open end."""

    name = "moment|start/end"

    def parse(self, text: str) -> Any:
        ends = tuple(end.strip() or ".." for end in text.split("/"))
        if len(ends) > 2 or all(end == ".." for end in ends) or not all(end == ".." or _moment(end) for end in ends):
            raise ValueError(
                f"{text!r} is not a time such as 2021, 2021-06, 2021-06-01, 2021-06-01T10:00 or 2021-06/.."
            )
        return ends[0] if len(ends) == 1 else ends


def _moment(text: str) -> bool:
    """Whether the text is a year, a month, or ISO 8601 as Python parses it."""
    try:
        datetime.fromisoformat(text + {4: "-01-01", 7: "-01"}.get(len(text), ""))
    except ValueError:
        return False
    return True


class Window(TextParam):
    """Ranges start:stop of the last dimensions, joined by commas."""

    name = "y0:y1,x0:x1"

    def parse(self, text: str) -> Any:
        try:
            ranges = tuple((int(a), int(b)) for a, b in (part.split(":") for part in text.split(",")))
        except ValueError:
            raise ValueError(f"{text!r} is not ranges such as 0:512,1024:1536") from None
        if any(not 0 <= start < stop for start, stop in ranges):
            raise ValueError(f"{text!r} is empty or negative: 0 <= start < stop must hold")
        return ranges


class Pair(TextParam):
    """key=value."""

    name = "key=value"

    def parse(self, text: str) -> Any:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise ValueError("expected key=value")  # the value may be a secret, so it is not repeated
        return key, value


class Numbers(TextParam):
    """One or two positive numbers joined by a comma."""

    name = "number"

    def parse(self, text: str) -> Any:
        expected = "a positive number, nor two joined by a comma"
        numbers = parse_floats(text, [1, 2], expected)
        if not all(number > 0 for number in numbers):
            raise ValueError(f"{text!r} is not {expected}")
        return numbers[0] if len(numbers) == 1 else numbers


STORED = "periplus."
"""Prefix of the names under which the context stores the values of shared options."""


def _shared_option(*names: str, **options: Any) -> Callable[[Command], Command]:
    """An option whose value is stored in the context, where `open_index` finds it."""
    return click.option(*names, expose_value=False, callback=_store, **options)


def _store(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    ctx.meta[f"{STORED}{param.name}"] = value


def _stored(name: str) -> Any:
    return click.get_current_context().meta[f"{STORED}{name}"]


keep_query = _shared_option(
    "--keep-query",
    multiple=True,
    metavar="NAME",
    help="A query parameter of URLs that is not secret and may be stored in the index. Repeatable.",
)
storage_option = _shared_option(
    "--storage-option",
    multiple=True,
    type=Pair(),
    help="A setting of the object store or server, for example region=eu-central-1, anon=true or headers.NAME=VALUE. "
    "Repeatable.",
)


def access(command: Command) -> Command:
    """Options of every verb that opens an index."""
    for option in (
        _shared_option(
            "--trust", is_flag=True, help="Allow opening a .duckdb file. Use this only for files from people you trust."
        ),
        _shared_option(
            "--allow",
            multiple=True,
            metavar="PREFIX",
            help="Allow the index to access sources under this prefix, besides those in its own folder. Repeatable.",
        ),
        _shared_option(
            "--template",
            multiple=True,
            type=Pair(),
            help="Value of a template in kerchunk references, for example base=s3://bucket/. Repeatable.",
        ),
        keep_query,
        storage_option,
    ):
        command = option(command)
    return command


SPELLED = {"template_overrides": "--template"}
"""Options whose name is not that of the argument."""


def access_arguments() -> dict[str, Any]:
    """The arguments of the library for --allow, --trust, --storage-option and --template."""
    templates = dict(_stored("template"))
    return {
        "allow": _stored("allow"),
        "trust": _stored("trust"),
        "storage_options": settings(_stored("storage_option")),
        **({"template_overrides": templates} if templates else {}),
    }


def source_arguments() -> dict[str, Any]:
    """The arguments of the library for --storage-option and --keep-query."""
    return {"storage_options": settings(_stored("storage_option")), "keep_query": _stored("keep_query")}


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


def open_index(url: str) -> Index:
    """The index at `url`, opened with the shared options."""
    import periplus

    with usage_errors(("template_overrides",)):
        return periplus.open(url, **access_arguments(), keep_query=_stored("keep_query"))


def open_any(url: str) -> Index:
    """The index at `url`, or the index of the one file there."""
    import periplus
    from periplus.forms import is_index

    absent = None
    is_file = os.path.isfile(url) or (_FILE.search(url.partition("?")[0]) and not os.path.isdir(url))
    if is_file and not url.lower().endswith(LISTS) and not is_index(url):
        try:
            return periplus.index(url, **source_arguments())
        except periplus.MissingError as error:
            absent = error  # it may be an index in an object store, where folders are only prefixes
    try:
        return open_index(url)
    except periplus.MissingError as error:
        raise absent or error from None


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
