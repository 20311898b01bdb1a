"""docs/conventions.md lists every code of a finding with its severity, and no other."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
SOURCE = ROOT / "src/periplus/conventions"
SEVERITIES = {"error", "warning", "info"}


def used():
    """(code, severity) of each finding in the source; identity.py says its codes without the prefix."""
    for path in SOURCE.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            name = isinstance(call, ast.Call) and (getattr(call.func, "attr", None) or getattr(call.func, "id", None))
            if name not in ("note", "Diagnostic") or len(call.args) < 2:
                continue
            code, severity = call.args[:2]
            if isinstance(code, ast.Constant):
                plain = code.value if "." in code.value else f"identity.{code.value}"
                found = severity.value if isinstance(severity, ast.Constant) else None
                yield plain, found


def listed():
    """Codes to severities, as the page has them."""
    section = (ROOT / "docs/conventions.md").read_text().partition("## Diagnostic codes")[2]
    rows = re.findall(r"^\| (`[^|]+`) \| ([a-z, ]+) \| ", section, re.MULTILINE)
    return {code: set(said.split(", ")) for codes, said in rows for code in re.findall(r"`([^`]+)`", codes)}


def test_every_code_is_listed_with_its_severity():
    page = listed()
    missing = {(code, severity) for code, severity in used() if severity not in {None, *page.get(code, set())}}
    assert missing == set()
    assert {code for code, severity in used() if severity is None} <= page.keys()


def test_no_code_is_listed_that_nobody_uses():
    computed = {"<convention>.undeclared", "tessera.missing", "geoemb.missing"}
    assert listed().keys() - {code for code, _ in used()} == computed
    assert set().union(*listed().values()) == SEVERITIES


def test_every_tolerance_names_a_code_of_the_list():
    section = (
        (ROOT / "docs/conventions.md")
        .read_text()
        .partition("## Tolerated variants")[2]
        .partition("## Diagnostic codes")[0]
    )
    named = {
        code for row in section.splitlines() for code in re.findall(r"`([a-z]+\.[a-z0-9-]+)`", row.rpartition(" | ")[2])
    }
    assert named <= listed().keys()
    assert len(named) > 40
