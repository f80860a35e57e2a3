"""Fuzz for as long as one likes: `python -m tests.fuzz [TARGET...] [--seconds N] [--seed N] [--keep FOLDER]`.

Each target gets its share of the seconds, in a process of its own. Where atheris is installed (`pip install
atheris`) inputs grow towards code that none has reached yet; elsewhere they are mutations by seeded chance.
An input that breaks something is written below `found/`, named by its digest, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.mutation import inputs
from tests.fuzz.target import FOUND, LONGEST, Target

SLOWER = 6
"""Times that code is slower while its coverage is measured."""


def by_chance(target: Target, seconds: float, seed: int) -> None:
    end = time.monotonic() + seconds
    count = 0
    for data in inputs(target, seed):
        if time.monotonic() > end:
            break
        count += 1
        tried(target, data, 1)
    print(f"{target.name}: {count} inputs by chance, seed {seed}", flush=True)


def tried(target: Target, data: bytes, slower: float) -> None:
    try:
        target.try_out(data, most_seconds=slower * 2)
    except BaseException:
        name = hashlib.sha256(data).hexdigest()[:12]
        (FOUND / target.name).mkdir(parents=True, exist_ok=True)
        (FOUND / target.name / name).write_bytes(data)
        print(f"{target.name}: broken by found/{target.name}/{name}: {data[:200]!r}", flush=True)
        raise


def by_coverage(name: str, seconds: int, seed: int, keep: Path) -> None:
    """Never returns: libFuzzer ends the process."""
    import atheris

    with atheris.instrument_imports(include=["engine", "api", "schemas", "tests.fuzz"]):
        from tests.fuzz.table import TARGETS

        target = TARGETS[name]
        first = target.seeds()
    corpus = keep / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(first):
        (corpus / f"seed-{number}").write_bytes(data[:LONGEST])
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={LONGEST}",
        f"-seed={seed}",
        *_dictionary(target, keep),
    ]
    options += [
        *("-timeout=60", "-rss_limit_mb=3000", "-verbosity=0", "-print_final_stats=1"),
        f"-artifact_prefix={keep}/",
    ]
    atheris.Setup(["fuzz", *options, str(corpus)], lambda data: tried(target, data, SLOWER))
    atheris.Fuzz()


def _dictionary(target: Target, keep: Path) -> list[str]:
    """The option that names the words of a target; an empty file would be refused."""
    if not target.words:
        return []
    words = keep / f"{target.name}.words"
    quoted = ("".join(f"\\x{byte:02x}" for byte in word) for word in target.words if len(word) < 60)
    words.write_text("".join(f'"{word}"\n' for word in quoted))
    return [f"-dict={words}"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="default: all")
    parser.add_argument("--seconds", type=int, default=600, help="for all together; default: 600")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="keep what coverage found here, and begin with it again")
    parser.add_argument("--by-chance", action="store_true", help="do without atheris")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    logging.disable()
    with tempfile.TemporaryDirectory() as temporary:
        keep = chosen.keep or Path(temporary)
        if chosen.one and not chosen.by_chance:
            by_coverage(chosen.one, chosen.seconds, chosen.seed, keep)
        from tests.fuzz.table import TARGETS

        if chosen.one:
            by_chance(TARGETS[chosen.one], chosen.seconds, chosen.seed)
            return 0
        names = chosen.targets or list(TARGETS)
        how = ["--by-chance"] if chosen.by_chance or not has_atheris() else []
        share = max(1, chosen.seconds // len(names))
        flags = ["--seconds", str(share), "--seed", str(chosen.seed), "--keep", str(keep), *how]
        codes = [
            subprocess.run([sys.executable, "-m", "tests.fuzz", "--one", name, *flags]).returncode
            for name in names
        ]
    return int(any(codes))


def has_atheris() -> bool:
    try:
        import atheris  # noqa: F401
    except ImportError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
