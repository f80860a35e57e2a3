"""Benchmarks, each a command: `python -m tests.bench.match`."""
