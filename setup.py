"""The wheel holds the shipped policies, presets, packs and tool sets too, as `api/policies.d`, and says in
`api/revision.txt` which commit it was built from."""

import shutil
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

SHIPPED = "policies.d"
REVISION = Path("api", "revision.txt")


def revision() -> str:
    """Of the commit; an sdist, which is built from without git, brings it along."""
    if REVISION.exists():
        return REVISION.read_text(encoding="utf-8")
    try:
        found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True)
    except OSError:
        return "unknown\n"
    return found.stdout if found.returncode == 0 else "unknown\n"


class Build(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib) / "api" / SHIPPED
            # Not what a service that ran in this checkout noted there, nor what is git's or an editor's.
            shutil.copytree(SHIPPED, target, ignore=shutil.ignore_patterns(".*"), dirs_exist_ok=True)
            (Path(self.build_lib) / REVISION).write_text(revision(), encoding="utf-8")


class Source(sdist):
    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        (Path(base_dir) / REVISION).write_text(revision(), encoding="utf-8")


setup(cmdclass={"build_py": Build, "sdist": Source})
