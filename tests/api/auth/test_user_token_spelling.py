"""A user token has one spelling, so that whoever compares tokens and the service agree which one it is."""

from __future__ import annotations

import pytest

from tests.api.auth.test_user_tokens import RULES, refusal, token, verify

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


@pytest.mark.parametrize("algorithm", RULES)
def test_a_token_is_spelt_in_one_way(algorithm: str) -> None:
    text, rule = token(algorithm), RULES[algorithm][0]
    verify(text, rule)
    # The last character of each of these signatures has bits that no byte holds.
    unused = text[:-1] + ALPHABET[ALPHABET.index(text[-1]) + 1]
    padded = text.replace(".", "=.", 1)
    for other in (f"{text}=", f"{text}==", f"{text}!", f"{text}.", f"{text}\n", padded, unused):
        refusal(other, rule)
