"""Benchmarks: periplus against its peers in one run, in CPU seconds, as ratios."""
