"""What `import periplus` offers: cheap to import, documented, and runnable as a module."""

import subprocess
import sys
from pathlib import Path

import pytest

import periplus

PAGE = Path(__file__).parent.parent.parent / "docs" / "api.md"


@pytest.mark.parametrize("name", periplus.__all__)
def test_every_public_name_exists_and_is_documented(name):
    assert getattr(periplus, name).__name__ == name
    assert f"`{name}" in PAGE.read_text()


def test_python_m_periplus_is_the_command_line():
    done = subprocess.run([sys.executable, "-m", "periplus", "--version"], capture_output=True, text=True, check=True)
    assert periplus.__version__ in done.stdout
