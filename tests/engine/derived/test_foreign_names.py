"""Names of hosts beyond ASCII take long to be read: of one call so many are, and the others are an ERROR."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import idna
import pytest

from engine.derived import recipients
from engine.derived.derivation import Derivation
from engine.derived.places import hosts
from engine.derived.tools import Tools
from engine.model import ToolDeclaration, ToolSet

TOOLS = Tools(
    [
        ToolSet(
            "t",
            "Tools",
            (
                ToolDeclaration(("send_email",), "mail", "send"),
                ToolDeclaration(("http_request",), "web", "read"),
                ToolDeclaration(("bash",), "shell", "execute"),
            ),
        )
    ]
)
MANY = 30_000
DOTS = ".。．｡"


def another(number: int) -> str:
    return f"é{number}.example"


def same(number: int) -> str:
    """`é.a.a.a.a.a.a.a.a.example`, each time with other dots."""
    return "é" + "".join(f"{DOTS[number >> 2 * place & 3]}a" for place in range(8)) + ".example"


@pytest.mark.parametrize("name", [another, same])
@pytest.mark.parametrize(
    ("tool", "member", "payload"),
    [
        ("send_email", "recipients", lambda names: {"to": ",".join(f"a@{name}" for name in names)}),
        ("send_email", "recipients", lambda names: {"to": [f"a@{name}" for name in names]}),
        ("send_email", "recipients", lambda names: {"raw": "".join(f"To: a@{n}\n" for n in names)}),
        ("http_request", "hosts", lambda names: {"url": " ".join(f"https://{n}/" for n in names)}),
        ("http_request", "urls", lambda names: {"body": " ".join(f"https://{n}/" for n in names)}),
        ("http_request", "hosts", lambda names: {"host": list(names)}),
        ("bash", "hosts", lambda names: {"command": "curl " + " ".join(names)}),
        ("bash", "hosts", lambda names: {"command": "scp " + " ".join(f"{name}:f" for name in names)}),
    ],
)
def test_so_many_are_read(
    tool: str,
    member: str,
    payload: Callable[[list[str]], dict[str, Any]],
    name: Callable[[int], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    remap, asked = idna.uts46_remap, 0

    def counted(text: str, **options: Any) -> str:
        nonlocal asked
        asked += 1
        return remap(text, **options)

    monkeypatch.setattr(idna, "uts46_remap", counted)
    recipients._domain.cache_clear()
    hosts._host.cache_clear()
    call = {"toolName": tool, "inputPayload": payload([name(number) for number in range(MANY)])}
    _, is_partial = Derivation(call, TOOLS).value("derived", member)
    assert is_partial
    assert asked < MANY // 3


def test_a_few_are_no_matter() -> None:
    call = {"toolName": "send_email", "inputPayload": {"to": [f"a@{another(n)}" for n in range(500)]}}
    found, is_partial = Derivation(call, TOOLS).value("derived", "recipients")
    assert isinstance(found, list) and len(found) == 500 and not is_partial
    assert found[7] == "a@xn--7-9fa.example"


def test_what_only_becomes_too_long_for_a_domain_is_not_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idna, "uts46_remap", None)
    assert len(recipients.domain_of("\ufdfa" * 200)) > recipients.LONGEST_DOMAIN
