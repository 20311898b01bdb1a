"""Write the generated parts of the documents anew: what stands between `<!-- begin x -->` and `<!-- end x -->`."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import click

ROOT = Path(__file__).parent.parent
WIDTH = 96


def command_help(verb: str) -> str:
    """What `periplus VERB --help` prints."""
    from periplus.cli.app import periplus

    context = click.Context(periplus, info_name="periplus", terminal_width=WIDTH, max_content_width=WIDTH)
    command: click.Command = periplus
    if verb:
        found = periplus.get_command(context, verb)
        assert found is not None
        command = found
        context = click.Context(command, info_name=verb, parent=context, terminal_width=WIDTH, max_content_width=WIDTH)
    return f"```text\n{command.get_help(context)}\n```"


def commands() -> str:
    """One section a verb."""
    from periplus.cli.app import VERBS

    parts = [command_help("")]
    parts += [f"## periplus {verb}\n\n{command_help(verb)}" for verb in VERBS]
    return "\n\n".join(parts)


def formats() -> str:
    """What is read, from the tuple of scanners."""
    from periplus.scan import SCANNERS

    rows = [f"| {scanner.NAME} | {first_line(scanner.__doc__)} |" for scanner in SCANNERS]
    return "\n".join(["| format | what of it |", "| --- | --- |", *rows])


def first_line(text: str | None) -> str:
    return (text or "").strip().splitlines()[0]


PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "docs/cli.md": {"commands": commands},
    "README.md": {"formats": formats},
}


def rendered(name: str) -> str:
    """The document with its generated parts as they should be now."""
    text = (ROOT / name).read_text()
    for part, make in PARTS[name].items():
        pattern = re.compile(rf"(<!-- begin {part} -->\n).*?(\n<!-- end {part} -->)", re.DOTALL)
        text, count = pattern.subn(lambda found, made=make(): found[1] + made + found[2], text)
        assert count == 1, f"{name} has {count} parts called {part}"
    return text


def main() -> None:
    for name in PARTS:
        text = rendered(name)
        if (ROOT / name).read_text() != text:
            (ROOT / name).write_text(text)
            print(f"{name} is new")


if __name__ == "__main__":
    main()
