"""The command group: verbs imported on use, errors in one line, exit codes 0, 1, 2 and 130."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module

import click

from periplus import PeriplusError, __version__
from periplus.cli.secrets import scrub
from periplus.errors import advice

VERBS = ("index", "info", "query", "read", "check", "convert", "validate")
CLI_WORDS = {
    "allow=[prefix]": "--allow PREFIX",
    "trust=True": "--trust",
    "array=": "--array",
    "skip_unsupported=True": "--skip-unsupported",
    "template_overrides": "--template",
    "zarr_format=": "--zarr-format ",
    "pattern=": "--pattern ",
    "coordinate=": "--coordinate ",
    "arrange=": "--arrange ",
    "duplicates=": "--duplicates ",
    "order=": "--order ",
    "skip_misfits=True": "--skip-misfits",
    "skip_misfits=": "--skip-misfits ",
    "assets=[...]": "--assets NAME,...",
    "assets=": "--assets ",
    "append=": "--append ",
    "refresh=": "--refresh ",
    "to=": "--output",
    "codecs=": "--codecs ",
    "dim=": "--dim ",
    "keep_query=": "--keep-query ",
    "crs=": "--crs",
    "level=": "--level",
    "resolution=": "--resolution",
    "max_size=": "--max-size",
    "bbox=": "--bbox",
    "dry_run=": "--dry-run",
    "fix=True": "--fix",
    "fix=": "--fix",
    'storage_options={"signer": ...}, {"query": "..."} or {"headers": {...}}': (
        "--storage-option signer=..., query=... or headers.NAME=..."
    ),
    "storage_options": "--storage-option",
    '{"anon": True}': "anon=true",
    "periplus.index": "periplus index",
    "index.write": "periplus convert",
}
OK, FINDINGS, ERROR, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 130, 141


class Verbs(click.Group):
    """A group whose commands are in modules of the same name."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in VERBS:
            return None
        command = import_module(f"periplus.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="periplus")
def periplus() -> None:
    """Index imagery and array files in place, query the index and read windows of the data.

    An index records where every chunk of the files is stored (file, offset, length). Files are not copied or changed.

    \b
    periplus index 'archive/*.tif' -o archive.parquet
    periplus info archive.parquet
    periplus read archive.parquet --time 2021-03 --max-size 1024 -o picture.png

    Exit codes: 0 success; 1 finished with findings (files that failed, sources that changed); 2 error.
    """


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; never a traceback unless PERIPLUS_DEBUG is set."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        code = periplus.main(arguments, prog_name="periplus", standalone_mode=False)
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):
        # The reader of our output closed the pipe (`| head`), which click reports as SystemExit. Python would report it
        # again while closing stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except (KeyboardInterrupt, click.exceptions.Abort):
        # After an interrupt between the creation of a coroutine and its first step, Python would warn here.
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        return report("interrupted", code=INTERRUPTED)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return ERROR
    except click.UsageError as error:
        verb = error.ctx.command_path if error.ctx else "periplus"
        return report(f"usage: {error.format_message()} (see {verb} --help)", arguments=arguments)
    except click.ClickException as error:
        return report(f"error: {error.format_message()}", arguments=arguments)
    except Exception as error:  # noqa: BLE001 - every error is reported in one line
        if os.environ.get("PERIPLUS_DEBUG"):
            import traceback

            click.echo(scrub("".join(traceback.format_exception(error)), arguments), err=True, nl=False)
        return report(sentence(error), arguments=arguments)
    return code if isinstance(code, int) else OK


def sentence(error: Exception) -> str:
    """`kind: message` of any exception."""
    if isinstance(error, PeriplusError):
        return f"{error.kind}: {in_cli_words(str(error))}"
    if isinstance(error, ModuleNotFoundError) and (text := advice(error)):
        return f"error: {text}"
    if isinstance(error, MemoryError):
        return "limit: not enough memory; read a smaller window or a coarser resolution"
    if isinstance(error, OSError) and error.strerror:
        return f"error: {error.strerror}" + (f": {error.filename}" if error.filename else "")
    return f"internal: {type(error).__name__}: {error} (PERIPLUS_DEBUG=1 shows where)"


def in_cli_words(text: str) -> str:
    """The advice of the library with command-line options instead of Python arguments."""
    for python, shell in CLI_WORDS.items():
        # Not inside a path: a folder may be called `dim=3`.
        text = re.sub(rf"(?<![\w/]){re.escape(python)}", shell, text)
    return text


def report(message: str, *, code: int = ERROR, arguments: Sequence[str] = ()) -> int:
    """One line on stderr, without secrets; returns the exit code."""
    line = " ".join(scrub(message, arguments).split())
    click.echo(f"periplus: {line}", err=True)
    return code
