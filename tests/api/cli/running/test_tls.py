"""A service behind TLS: its certificate is checked, by the authorities of this machine or by named ones."""

from __future__ import annotations

import json

import pytest

from tests.api.cli.running.conftest import Operator
from tests.harness.receiver import Answer, Certificate, Receiver

HALT = {"haltId": "hlt_1", "scope": "agent", "agentId": "a", "reason": "r"}


def test_a_certificate_that_nobody_vouches_for_is_refused(operator: Operator) -> None:
    certificate = Certificate("127.0.0.1")
    with Receiver(tls=certificate) as receiver:
        receiver.plan = [Answer(200, json.dumps(HALT).encode(), {"Content-Type": "application/json"})]
        words = ("halt", "--agent", "a", "--url", f"https://127.0.0.1:{receiver.port}")
        error = operator.refused(*words, code=3)
        assert "CERTIFICATE_VERIFY_FAILED" in error and receiver.requests == []
        operator.environment.setenv("SSL_CERT_FILE", str(certificate.file))
        assert operator.done(*words).startswith("halted agent `a`: hlt_1")
        (request,) = receiver.requests
        assert request.path == "/v1/halt" and request.headers["authorization"].startswith("Bearer ")


def test_what_is_no_service_is_told(operator: Operator) -> None:
    with Receiver() as receiver:
        words = ("halt", "--agent", "a", "--url", f"http://127.0.0.1:{receiver.port}")
        for status, code, said in (
            (200, 2, "is not this service; its answer is no JSON"),
            (302, 2, "is not this service; its answer is no JSON"),
            (502, 3, "is away (502); try again"),
        ):
            receiver.plan = [Answer(status, b"<html>\x1b[2J", {"Location": "http://127.0.0.1:9/"})]
            error = operator.refused(*words, code=code)
            assert said in error and "\x1b" not in error
        receiver.plan = [Answer(503, b'{"detail": "the disk is full"}')]
        assert "the disk is full" in operator.refused(*words, code=3)


@pytest.mark.parametrize("body", [b'{"ok": true}', b"null", b'["x"]', b'[{"haltId": "h"}, 7]'])
def test_json_of_another_service_is_no_halt(operator: Operator, body: bytes) -> None:
    with Receiver() as receiver:
        url = f"http://127.0.0.1:{receiver.port}"
        for words in (
            ("halt", "--yes", "--json"),
            ("halts",),
            ("halts", "--json"),
            ("approvals", "list"),
            ("policies", "show", "simulate"),
            ("packs", "list"),
        ):
            receiver.plan = [Answer(200, body)]
            error = operator.refused(*words, "--url", url, code=2)
            assert "is not this service; its answer is another one's" in error
        receiver.plan = [Answer(204)]
        operator.refused("halts", "--url", url, code=2)


@pytest.mark.parametrize("prefix", ["http://localhost", "//localhost"])
def test_a_list_that_goes_on_elsewhere_takes_no_token_there(operator: Operator, prefix: str) -> None:
    with Receiver() as receiver, Receiver() as other:
        link = f'<{prefix}:{other.port}/v1/approvals?cursor=c>; rel="next"'
        receiver.plan = [Answer(200, b'[{"approvalId": "apr_1"}]', {"Link": link})]
        words = ("approvals", "list", "--url", f"http://127.0.0.1:{receiver.port}")
        assert "goes on at another address" in operator.refused(*words, code=2)
        assert other.requests == []


def test_a_list_that_goes_on_with_nothing_has_an_end(operator: Operator) -> None:
    with Receiver() as receiver:
        headers = {"Link": '</v1/approvals?cursor=c>; rel="next"', "X-Total-Count": "many"}
        receiver.plan = [Answer(200, b"[]", headers)]
        operator.done("approvals", "list", "--url", f"http://127.0.0.1:{receiver.port}")
        assert len(receiver.requests) == 1
