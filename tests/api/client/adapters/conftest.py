"""One service for the tests of a module, an agent of its own for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.api.client.adapters.driver import Tools
from tests.api.client.adapters.place import POLICIES, Place
from tests.harness.running_service import Served


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("adapters"), POLICIES) as served:
        yield served


@pytest.fixture
def tools() -> Tools:
    return Tools()


@pytest.fixture
def place(service: Served) -> Place:
    return Place(service)
