"""Bytes that nobody would send, given to everything that reads what others wrote.

A target has a check that takes bytes and fails where an oracle is broken: nothing but the refusals that are
meant to come raises, what is printed reads as before, two ways to one answer agree, and no input takes long
for its size. `tests/fuzz/test_fuzz.py` gives each a few hundred seeded inputs; `python -m tests.fuzz` runs
them for as long as one likes, by coverage where atheris is installed. What it finds is a file below `found/`,
which every run of the tests gives to its target again.
"""
