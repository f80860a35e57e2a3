"""The money a call moves."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.derived.declared import is_partial, shown


@pytest.mark.parametrize(
    ("payload", "amount", "currency"),
    [
        ({"amount": 100, "currency": "eur"}, 100, "EUR"),
        ({"amount": "1,250.00 EUR"}, 1250, "EUR"),
        ({"amount": "€1.250,00"}, 1250, "EUR"),
        ({"amount": "1,250"}, 1250, None),
        ({"amount": "1.250 EUR"}, 1250, "EUR"),
        ({"amount": "€1.250,-"}, 1250, "EUR"),
        ({"amt": 1250}, 1250, None),
        ({"note": {"value": "1250"}}, None, None),
        ({"amount": "€20.000"}, 20000, "EUR"),
        ({"amount": "0.125 BTC"}, 0.125, "BTC"),
        ({"amount": 1.25}, 1.25, None),
        ({"price": 300, "quantity": 100}, 30000, None),
        ({"items": [{"unit_price": 300, "qty": 2}, {"unit_price": 1, "qty": 9}]}, 609, None),
        ({"items": [{"qty": 9}, {"qty": 2, "price": 300}]}, 2700, None),
        ({"price": {"value": "300", "currency": "EUR"}, "quantity": "-100"}, 30000, "EUR"),
        ({"limit_price": 10, "shares": 50}, 500, None),
        ({"pricePerShare": 300, "number_of_shares": 100}, 30000, None),
        ({"cost_per_unit": 3, "orderQty": 4}, 12, None),
        ({"price": 5, "quantity": "many"}, "unreadable", None),
        ({"price": 5, "quantity": "25 kg"}, 125, None),
        ({"price": 5, "quantity": "2 boxes"}, 10, None),
        ({"price": 5, "quantity": "1,500 x"}, 7500, None),
        ({"price": 5, "quantity": "10x"}, 50, None),
        ({"price": 5, "quantity": " "}, 5, None),
        ({"price": 5, "quantity": None}, 5, None),
        ({"price": 5, "quantity": "1.500 kg"}, 7500, None),
        ({"price": 5, "quantity": "2 mio"}, "unreadable", None),
        ({"amount": "5 mio EUR"}, "unreadable", None),
        ({"price": 5, "quantity": "2 dozen"}, "unreadable", None),
        ({"price": 5, "quantity": "2 x 10"}, "unreadable", None),
        ({"price": 5, "quantity": "10k"}, "unreadable", None),
        ({"price": 1e300, "quantity": 1e300}, "unreadable", None),
        ({"amount": "12,50"}, 12.5, None),
        ({"amount": "-5"}, 5, None),
        ({"amount": {"value": "12.5", "currency_code": "USD"}}, 12.5, "USD"),
        ({"payments": [{"amount": 999}] * 10}, 9990, None),
        ({"amount_cents": 12345}, 123.45, None),
        ({"price": 5, "total": 10}, 10, None),
        ({"amount": {"value": 5, "numericCode": 978, "chainId": 137, "version": 7}}, 5, None),
        ({"amount": {"value": 5, "updatedAt": 1764400000}}, 5, None),
        ({"amount": {"EUR": 20000}}, 20000, None),
        ({"amount": {"gross": "20000", "net": 1}}, 20000, None),
        ({"amount": {"units": "5", "nanos": 500000000}}, 5, None),
        ({"amount": {"minor": 500, "scale": 1000}}, 5, None),
        ({"amount": {"raw": 5, "shown": "five"}}, 5, None),
        ({"amount": "$5", "currency": "EUR"}, 5, "mixed"),
        ({"amount": "lots"}, "unreadable", None),
        ({"price": "price_1N", "quantity": 1}, None, None),
        ({"amount": 10**400}, "unreadable", None),
        ({"amount": ["1e999", "-1e999"]}, "unreadable", None),
        ({"amount": [1e308, 1e308, -1e308]}, "unreadable", None),
        ({"amount": [10**308, 10**308, 0.5]}, "unreadable", None),
        ({"payments": [{"amount": 10000}, {"amount": -9999.99}]}, 10000, None),
        ({"amount": [10000, -9999.5, 1]}, 10001, None),
        ({"amount": [1, -10000]}, 10000, None),
        ({"amount": [-5, -6]}, 11, None),
        ({"amount": "10,0000"}, 100000, None),
        ({"amount": "5,00000"}, 500000, None),
        ({"amount": "１００"}, 100, None),
        ({"amount": True, "to": "x"}, None, None),
        ({"amount": 1990, "payment_intent": "pi_3PQx7a2eZvKY"}, 1990, None),
        ({}, None, None),
    ],
)
def test_money_is_read_as_a_number(payload: Any, amount: Any, currency: str | None) -> None:
    assert shown("transfer_money", payload, "amount") == amount
    assert shown("transfer_money", payload, "currency") == currency
    assert shown("frobnicate", payload, "amount") == amount
    assert shown("send_email", payload, "amount") is None
    assert is_partial("pay", payload, "amount") is (amount == "unreadable")


def test_the_value_of_a_payment_is_its_amount() -> None:
    payload = {"to": "0xabc", "value": "1250"}
    assert shown("transfer_eth", payload, "amount") == 1250
    assert shown("frobnicate", payload, "amount") is None
