"""`python -m periplus`: the command line without its script."""

from periplus.cli import main

main()
