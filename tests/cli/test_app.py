"""The command line as a whole: one-line errors, exit codes, no traceback, no secret, current documents."""

import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

import periplus as library
from periplus.cli import app
from periplus.errors import PeriplusError

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "periplus.cli"]


def commands():
    context = click.Context(app.periplus)
    return {verb: app.periplus.get_command(context, verb) for verb in app.VERBS}


def test_no_arguments_show_help(periplus):
    done = periplus()
    assert "Usage: periplus" in done.out + done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("verb", app.VERBS)
def test_every_verb_has_help_with_an_example(verb, periplus):
    done = periplus(verb, "--help")
    assert (done.code, done.err) == (0, "")
    assert re.search(rf"^\s+periplus {verb} \S+", done.out, re.MULTILINE)
    for parameter in commands()[verb].params:
        assert isinstance(parameter, click.Argument) or parameter.help, parameter.name


def test_version(periplus):
    assert periplus("--version").out == f"periplus, version {library.__version__}\n"


@pytest.mark.parametrize("arguments", [["fly"], ["info"], ["info", "a", "b"], ["info", "--fly", "a"], ["read", "a"]])
def test_wrong_usage_is_one_line(arguments, periplus):
    done = periplus(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("periplus: usage: ")
    assert len(done.err.splitlines()) == 1


def failing(monkeypatch, error):
    def callback(**_):
        raise error

    monkeypatch.setattr(commands()["info"], "callback", callback)


@pytest.mark.parametrize("kind", PeriplusError.__subclasses__(), ids=lambda kind: kind.kind)
def test_every_error_of_ours_is_one_line_with_its_kind(kind, monkeypatch, periplus):
    failing(monkeypatch, kind("it is\nso", url="https://u:hunter2@example.com/a.tif?sig=hunter2", offset=7))
    done = periplus("info", "a")
    assert done.code == 2
    assert done.err.startswith(f"periplus: {kind.kind}: it is so (https://example.com/a.tif?sig=REDACTED @ 7)")
    assert len(done.err.splitlines()) == 1


def test_an_unforeseen_error_is_one_line_too(monkeypatch, periplus):
    failing(monkeypatch, RuntimeError("https://u:hunter2@example.com/ fell over"))
    done = periplus("info", "a")
    assert done.code == 2
    assert (
        done.err == "periplus: internal: RuntimeError: https://example.com/ fell over (PERIPLUS_DEBUG=1 shows where)\n"
    )


def test_debug_shows_where_but_no_secret(monkeypatch, capfd):
    monkeypatch.setenv("PERIPLUS_DEBUG", "1")
    failing(monkeypatch, RuntimeError("https://u:hunter2@example.com/ and topsecret fell over"))
    assert app.run(["info", "a", "--storage-option", "key=topsecret"]) == 2
    said = capfd.readouterr().err
    assert "Traceback" in said
    assert "hunter2" not in said
    assert "topsecret" not in said


def test_advice_is_in_the_words_of_the_command_line(monkeypatch, periplus):
    failing(monkeypatch, library.DeniedError("pass allow=[prefix] and storage_options"))
    assert periplus("info", "a").err == "periplus: denied: pass --allow PREFIX and --storage-option\n"


def test_a_reader_that_leaves_is_no_error(index):
    query = " ".join([*COMMAND, "query", str(index), "--format", "csv"])
    done = subprocess.run(f"({query}; echo code $? >&2) | true", shell=True, capture_output=True, text=True)
    assert re.fullmatch(r"code (0|141)\n", done.stderr)


def test_an_interrupt_is_one_line_and_exit_130(tmp_path):
    script = "import sys, time; from periplus.cli import app, info\n"
    script += "def wait(**_): print('ready', flush=True); time.sleep(60)\n"
    script += "info.command.callback = wait; sys.exit(app.run(['info', 'a']))"
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    # The line break before it ends the ^C that a terminal shows.
    assert (process.returncode, err.lstrip("\n")) == (130, "periplus: interrupted\n")


def test_every_command_and_option_is_in_the_documents():
    page = (ROOT / "docs" / "cli.md").read_text()
    for verb, command in commands().items():
        section = page.partition(f"## periplus {verb}\n")[2].partition("\n## ")[0]
        assert section, verb
        for parameter in command.params:
            for option in parameter.opts if isinstance(parameter, click.Option) else ():
                assert option in section, f"{verb} {option}"


def generator():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", generator().PARTS)
def test_the_generated_parts_of_the_documents_are_current(name):
    # Where lines are broken is click's business, and differs between its versions.
    said, due = ((text.split()) for text in ((ROOT / name).read_text(), generator().rendered(name)))
    assert said == due, f"{name} is out of date: make docs"


def test_every_kind_of_error_is_explained():
    page = (ROOT / "docs" / "errors.md").read_text()
    for kind in PeriplusError.__subclasses__():
        if kind.__module__ != "periplus.errors":
            continue  # of a face that another test has loaded
        assert f"| `{kind.kind}` | `{kind.__name__}` | `{kind.__bases__[1].__name__}` |" in page


def test_links_between_documents_lead_somewhere():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in link:
                assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_the_environment_is_not_needed():
    done = subprocess.run([*COMMAND, "--help"], capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
    assert done.returncode == 0


def test_advice_is_in_the_words_of_the_command_line_and_paths_stay():
    text = app.in_cli_words("1.tif has no time: pattern='x', or coordinate='order' (/data/dim=3/pattern=1/1.tif)")
    assert text == "1.tif has no time: --pattern 'x', or --coordinate 'order' (/data/dim=3/pattern=1/1.tif)"


def test_advice_on_indexing_names_options_of_the_command_line():
    text = app.in_cli_words(
        "assets=[...] or assets= chooses; append= needs to=, and codecs='all'; skip_misfits=True skips"
    )
    assert " ".join(text.split()) == (
        "--assets NAME,... or --assets chooses; --append needs --output, and --codecs 'all'; --skip-misfits skips"
    )
