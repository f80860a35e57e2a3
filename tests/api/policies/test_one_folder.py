"""Which policies folder counts as the one of whoever serves the same embedded database."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from api.policies import one_folder
from api.policies.one_folder import Folder
from api.settings import Settings, SettingsError
from tests.harness.application import settings_for


def test_the_same_path_in_another_container_is_another_folder(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    own = settings.policies_dir
    own.mkdir()
    settings.data_dir.mkdir()
    there = own.stat()
    with _served(settings, Folder(str(own), 1, 1, "mnt:[1]")):
        with pytest.raises(SettingsError) as refused, one_folder.held(settings):
            pass
        assert f"with the policies folder `{own}` of its container: " in str(refused.value)
    with (
        _served(settings, Folder("/policies", there.st_dev, there.st_ino, "mnt:[1]")),
        one_folder.held(settings),
    ):
        pass


@contextlib.contextmanager
def _served(settings: Settings, folder: Folder) -> Iterator[None]:
    """By somebody with that folder."""
    path = Path(settings.database.removeprefix("sqlite:///") + one_folder.ENDING)
    path.write_bytes(msgspec.json.encode(folder))
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield
