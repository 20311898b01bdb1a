"""Run the benchmarks and write what they measured to docs/bench.md: `python -m bench [headers reads ...]`."""

from __future__ import annotations

import argparse
import importlib
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from bench.measure import Section, machine

SECTIONS = (
    "headers",
    "reads",
    "rows",
    "collections",
    "traffic",
    "imagery",
    "imagerytraffic",
    "store",
    "bigstore",
    "conventions",
    "collecting",
    "dask",
)
REPORT = Path(__file__).parent.parent / "docs" / "bench.md"


def table(section: Section) -> list[str]:
    columns = list(dict.fromkeys(name for row in section.rows.values() for name in row))
    lines = [f"## {section.title}", "", section.note, "", "| | " + " | ".join(columns) + " |"]
    lines.append("|---|" + "---:|" * len(columns))
    for case, values in section.rows.items():
        shown = [f"{v:.3g}" if isinstance(v := values.get(c, ""), float) and v < 1000 else
                 f"{v:,.0f}" if isinstance(v, float) else v for c in columns]  # fmt: skip
        lines.append(f"| {case} | " + " | ".join(shown) + " |")
    return [*lines, ""]


def report(sections: list[Section]) -> str:
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench`. CPU seconds include all threads of the process. Each ratio compares libraries "
        "that took turns in one run on one machine; the best of several rounds counts. Absolute numbers, and wall "
        "times above all, depend on the machine and on what else runs on it; ratios of CPU seconds depend on it "
        "much less.",
        "",
        f"Measured {datetime.now(UTC):%Y-%m-%d} on: " + ", ".join(f"{k} {v}" for k, v in machine().items()) + ".",
        "",
    ]
    for section in sections:
        lines += table(section)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], help="default: all")
    parser.add_argument("--keep", type=Path, help="a folder for the generated files, kept between runs")
    parser.add_argument("--dry", action="store_true", help="print the report only")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        results = []
        for name in arguments.sections or SECTIONS:
            print(f"{name} …")
            results.append(importlib.import_module(f"bench.{name}").run(folder))
    text = report(results)
    print(text)
    if not arguments.dry and not arguments.sections:
        REPORT.write_text(text)
        print(f"written to {REPORT}")


if __name__ == "__main__":
    main()
