"""Measurements beside published algorithms and other programs: `python -m benchmarks --help`."""
