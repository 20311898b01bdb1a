"""`python -m periplus.cli`, the same as `python -m periplus`."""

from periplus.cli import main

main()
