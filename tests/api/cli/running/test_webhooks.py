"""Webhooks from a terminal."""

from __future__ import annotations

from tests.api.cli.running.conftest import Operator


def test_a_webhook_is_added_tested_and_removed(operator: Operator) -> None:
    address = "http://127.0.0.1:9/hook"
    code, secret, error = operator.run(
        "webhooks", "add", address, "--event", "tool.blocked", "--event", "run.failed"
    )
    assert code == 0 and secret.startswith("whsec_") and "shown only now" in error
    (found,) = operator.json("webhooks", "list")
    assert found["events"] == ["tool.blocked", "run.failed"] and "secret" not in found
    assert address in operator.done("webhooks", "list")
    webhook = found["webhookId"]
    assert operator.done("webhooks", "test", webhook).startswith("on its way: ")
    (delivery,) = operator.json("webhooks", "deliveries", webhook)
    assert delivery["event"] == "webhook.test"
    assert "webhook.test" in operator.done("webhooks", "deliveries", webhook)
    again = operator.json("webhooks", "redeliver", webhook, delivery["deliveryId"])
    assert again["deliveryId"] == delivery["deliveryId"]
    assert "give --yes" in operator.refused("webhooks", "remove", webhook, code=2)
    assert operator.done("webhooks", "remove", webhook, "--yes").startswith(f"deleted the webhook {webhook}")
    assert operator.json("webhooks", "list") == []


def test_what_the_service_refuses_is_told_in_its_words(operator: Operator) -> None:
    error = operator.refused("webhooks", "add", "http://10.0.0.1/x", "--event", "tool.blokced")
    assert "the service refuses (422)" in error
    assert (
        "/url: " in error
        and "/events/0: `tool.blokced` is not an event; did you mean `tool.blocked`?" in error
    )
    operator.become("reviewer")
    assert "the service refuses (403)" in operator.refused("webhooks", "list")
