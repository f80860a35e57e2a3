"""The wheel holds the shipped policies, presets, packs and tool sets too, as `api/policies.d`."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SHIPPED = "policies.d"


class Build(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            shutil.copytree(SHIPPED, Path(self.build_lib) / "api" / SHIPPED, dirs_exist_ok=True)


setup(cmdclass={"build_py": Build})
