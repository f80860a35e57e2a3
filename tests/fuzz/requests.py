"""What comes over the network: bodies, tokens, and the bytes of connections."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import jwt

from api.auth.user_tokens import verify_user_token
from api.http import bodies
from api.http.problems import ApiError
from api.ingestion.validation import read_event, split_batch
from api.server.connections import event_fast_path
from schemas.validation import violations
from tests.api.server.connections.test_known_heads import OTHER, REFUSED, REQUESTS, UNLEARNT
from tests.fuzz.target import Target, split_words, text_of
from tests.harness.event_connection import FIRST, Connection, Service, played
from tests.harness.hostile import EVENT, NOT_JSON, SAMPLES

JSON = (
    *split_words(
        '{ } [ ] , : " \\" \\u0000 \\ud800 \\udc00 null true -0 1e400 1E+2 0.1 NaN 012 "a":1 "metadata":'
    ),
    b"9" * 1_001,
    b'"userToken":"x",',
    b'"toolName":"wire"',
)
SECRET = "a secret of the fuzzing, which is long enough"
NOW = 1_800_000_000.0
RULE = {"algorithm": "HS256", "key": SECRET, "issuer": "https://id.example", "audience": "agents"}
CLAIMS: dict[str, Any] = {"sub": "u-1", "exp": NOW + 600, "iss": RULE["issuer"], "aud": "agents"}
TOKENS = tuple(
    jwt.encode(CLAIMS | more, SECRET, algorithm="HS256")
    for more in ({}, {"email": "a@b.example", "scope": "a b", "act": {"sub": "x", "act": {"sub": "y"}}})
)
WIRE = (
    *(
        b"\r\n",
        b"\n",
        b"\r\n\r\n",
        b": ",
        b"0\r\n\r\n",
        b"5\r\n",
        b"HTTP/1.0",
        b"HTTP/1.1",
        b"POST ",
        b"GET ",
    ),
    *(
        b"Content-Length: 5\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: close\r\n",
        b"Upgrade: h2c\r\n",
    ),
    *(
        b"Expect: 100-continue\r\n",
        b"Connection: Upgrade\r\n",
        b"X-API-Key: x\r\n",
        b"/v1/events",
        b"\x00",
        b"\t",
    ),
)
MOST_PIECES = 4


# ---- bodies --------------------------------------------------------------------------------------------


def body_seeds() -> Sequence[bytes]:
    samples = [json.dumps(sample).encode() for sample in SAMPLES.values()]
    return [json.dumps(EVENT).encode(), *samples, *(each for each in NOT_JSON.values() if len(each) < 2_000)]


def check_body(data: bytes) -> None:
    """Every reader of bodies answers or refuses, the quick checks of an event agree with its schema, and a
    value that is accepted is written and read again as it is."""
    try:
        value = bodies.decode_unique(data)
    except ApiError as error:
        assert 400 <= error.status < 500 and str(error)
        value = None
    else:
        assert bodies.decode(json.dumps(value).encode()) == value
        for schema in SAMPLES:
            for each in violations(schema_of(schema), value):
                assert each.message
    assert _event(data, worded=True) == _event(data, worded=False)
    try:
        events = split_batch(data)
    except ApiError as error:
        assert 400 <= error.status < 500
    else:
        for each in events:
            _event(each, worded=True)


def schema_of(name: str) -> str:
    return f"bodies/{name}"


def _event(data: bytes, *, worded: bool) -> object:
    try:
        body, metadata = read_event(data, worded=worded)
    except ApiError as error:
        assert 400 <= error.status < 500 and str(error)
        return None
    assert not list(violations("bodies/event", bodies.decode(data)))
    return body.eventId, body.eventType, metadata


# ---- tokens --------------------------------------------------------------------------------------------


def token_seeds() -> Sequence[bytes]:
    head = base64.urlsafe_b64encode(b'{"alg":"none","typ":"JWT"}').rstrip(b"=").decode()
    unsigned = f"{head}.{TOKENS[0].split('.')[1]}."
    return [each.encode() for each in (*TOKENS, unsigned, TOKENS[0].replace(".", ".."), "a.b.c")]


def check_token(data: bytes) -> None:
    """No token verifies but those that were signed, to the letter."""
    token = text_of(data)
    try:
        facts = verify_user_token(token, RULE, NOW)
    except ApiError as error:
        assert error.status == 401 and (len(token) < 20 or token not in str(error))
        return
    assert token in TOKENS and facts["user"]["id"] == "u-1"


# ---- connections ---------------------------------------------------------------------------------------


@cache
def wire_seeds() -> Sequence[bytes]:
    """A byte that says how the rest is cut, then what is sent on one connection."""
    streams = [FIRST + each for each in REQUESTS if len(each) < 1_500]
    streams += [b"".join(each) for table in (OTHER, UNLEARNT) for each in table.values()]
    streams += [FIRST + each for each in REFUSED.values()]
    return [b"\x00" + each for each in streams if len(each) < 2_000]


def check_wire(data: bytes) -> None:
    """Any bytes: nothing raises, nothing is a fault of ours, a head that is known by its bytes is answered as
    one that is parsed, in whatever pieces it comes, and the fast path answers as the endpoint does."""
    if b"userToken" in data:
        return  # the stand-in of the service has no rule for it
    pieces = _pieces(data[:1], data[1:])
    assert played(_sent, pieces, 0, None) == played(_sent, pieces, MANY, None)
    # In one piece: the endpoint refuses a key as soon as the head is there, the fast path waits for the body.
    fast, plain = (played(_sent, [FIRST, data[1:]], MANY, state) for state in (None, {}))
    one, other = _comparable(fast.written), _comparable(plain.written)
    assert one == (other[: len(one)] if fast.is_waiting else other)
    assert fast.is_waiting or fast.is_closing == plain.is_closing
    assert not re.search(rb"(?m)^HTTP/1.1 5", plain.written), plain.written


MANY = event_fast_path.MOST_HEADS


def _pieces(how: bytes, sent: bytes) -> list[bytes]:
    count = (how[0] if how else 0) % MOST_PIECES
    marks = [0, *(len(sent) * (number + 1) // (count + 1) for number in range(count)), len(sent)]
    return [FIRST, *(sent[begin:end] for begin, end in pairwise(marks))]


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that a connection was answered, and in what state it is left."""

    written: bytes
    is_closing: bool
    is_waiting: bool
    """For the rest of a body."""


async def _sent(service: Service, pieces: list[bytes], heads: int, state: dict[str, Any] | None) -> Outcome:
    connection = Connection(service, state=state)
    connection.protocol._heads = heads
    for piece in pieces:
        await connection.send(piece)
    await connection.rest()
    written = re.sub(rb"req_[0-9a-z]+", b"req_*", connection.wire.written)
    return Outcome(written, connection.wire.closing, connection.protocol.cycle.more_body)


def _comparable(written: bytes) -> list[list[bytes]]:
    """Answers one by one, without the order of their headers."""
    return [sorted(each.lower().split(b"\r\n")) for each in written.split(b"HTTP/1.1 ")[1:]]


TARGETS = (
    Target("body", check_body, body_seeds, JSON, rounds=800),
    Target("token", check_token, token_seeds, split_words("= . - _ eyJ bm9uZQ AAAA +/"), rounds=5_000),
    Target("wire", check_wire, wire_seeds, WIRE, rounds=150),
)
