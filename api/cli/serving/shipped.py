"""The policies, presets, packs and tool sets that come with the service: where they lie, and laying them out.

Decides when a folder that is not there is made of them: at the very first start, in the default place. A
folder that somebody named, or that is gone, is never made up.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Final

from api.settings import Settings

PACKAGE: Final = Path(__file__).parents[2]
FOLDER: Final = "policies.d"


def shipped() -> Path | None:
    """The shipped folder: within the package where it was installed, else beside it in a checkout."""
    found = (folder / FOLDER for folder in (PACKAGE, PACKAGE.parent))
    return next((each for each in found if (each / "policies").is_dir()), None)


def lay_out(settings: Settings) -> bool:
    """Make the default folder of the shipped one, if nothing was ever here; whether it was made."""
    source, target = shipped(), settings.policies_dir
    if source is None or target != Path(FOLDER) or target.exists():
        return False
    if (
        not settings.database.startswith("sqlite:///")
        or Path(settings.database.removeprefix("sqlite:///")).exists()
    ):
        return False
    # Beside it and then renamed, so that a start that is cut off leaves no half of it.
    aside = Path(tempfile.mkdtemp(prefix=".policies-", dir=target.absolute().parent))
    try:
        # Without what a service that ran in a checkout noted there, by which this would be its folder.
        hidden = shutil.ignore_patterns(".*")
        shutil.copytree(source, aside / FOLDER, ignore=hidden, copy_function=shutil.copyfile)
        (aside / FOLDER).rename(target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return True
