"""Update the generated parts of the documents, between `<!-- begin x -->` and `<!-- end x -->`."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import click

ROOT = Path(__file__).parent.parent
WIDTH = 96


def command_help(verb: str) -> str:
    """The output of `periplus VERB --help`."""
    from periplus.cli.app import periplus

    settings = {"terminal_width": WIDTH, "max_content_width": WIDTH, "help_option_names": ["-h", "--help"]}
    context = click.Context(periplus, info_name="periplus", **settings)
    command: click.Command = periplus
    if verb:
        found = periplus.get_command(context, verb)
        assert found is not None
        command = found
        context = click.Context(command, info_name=verb, parent=context, **settings)
    return f"```text\n{command.get_help(context)}\n```"


def commands() -> str:
    """One section per command."""
    from periplus.cli.app import VERBS

    parts = [command_help("")]
    parts += [f"## periplus {verb}\n\n{command_help(verb)}" for verb in VERBS]
    return "\n\n".join(parts)


def formats() -> str:
    """The supported formats, from the list of scanners and the tables of decoders."""
    from periplus.cli.output.describe import COMPRESSIONS
    from periplus.decode.compressions import TIFF_COMPRESSIONS
    from periplus.decode.tiff.codec import PICTURES
    from periplus.scan import SCANNERS

    known = dict.fromkeys(COMPRESSIONS.get(code, f"number {code}") for code in sorted({*TIFF_COMPRESSIONS, *PICTURES}))
    rows = [f"| {scanner.NAME.upper()} | {first_line(scanner.__doc__)} |" for scanner in SCANNERS]
    return "\n".join(
        ["| reads | |", "| --- | --- |", *rows, f"| TIFF compressions | {', '.join(known)}; predictors 1, 2 and 3 |"]
    )


def first_line(text: str | None) -> str:
    """The first line of a docstring."""
    return (text or "").strip().splitlines()[0]


PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "docs/cli.md": {"commands": commands},
    "README.md": {"formats": formats},
}


def rendered(name: str) -> str:
    """The document with current generated parts."""
    text = (ROOT / name).read_text()
    for part, make in PARTS[name].items():
        pattern = re.compile(rf"(<!-- begin {part} -->\n).*?(\n<!-- end {part} -->)", re.DOTALL)
        found = pattern.search(text)
        assert found is not None, f"{name} has no part called {part}"
        text = text[: found.end(1)] + make() + text[found.start(2) :]
    return text


def main() -> None:
    """Write the documents that are out of date."""
    for name in PARTS:
        text = rendered(name)
        if (ROOT / name).read_text() != text:
            (ROOT / name).write_text(text)
            print(f"{name} updated")


if __name__ == "__main__":
    main()
