"""Random interleavings of everything that may happen to the policies: see `PoliciesModel`."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from tests.harness.policies_machine import OneNode, Policies, ThreeNodes, ThreeWorkers, walk

SETTINGS = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
for machine in (OneNode, ThreeWorkers, ThreeNodes):
    machine.TestCase.settings = SETTINGS
TestOneNode = OneNode.TestCase
TestThreeWorkers = ThreeWorkers.TestCase
TestThreeNodes = ThreeNodes.TestCase


@pytest.mark.parametrize("machine", [OneNode, ThreeWorkers, ThreeNodes])
@pytest.mark.parametrize("seed", range(4))
def test_long_walks(machine: type[Policies], seed: int) -> None:
    for number in range(5):
        walk(machine, 1000 * seed + number, 60)
