"""Audit records are canonical JSON whatever is in them: anybody can write again what a hash covers."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from api.database.audit_chain import Record
from engine.canonical_json import canonical_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


def test_the_fields_of_a_record_are_in_the_order_of_their_names() -> None:
    assert list(Record.__struct_fields__) == sorted(Record.__struct_fields__)


@given(
    texts=st.dictionaries(
        st.sampled_from(["actor", "agentId", "runId", "toolCallId", "toolName", "userId", "reason"]),
        st.text(),
    ),
    details=st.none() | st.dictionaries(st.text(max_size=4), VALUES, max_size=4),
    chain=st.none() | st.lists(st.dictionaries(st.text(max_size=3), VALUES, max_size=2), max_size=2),
)
def test_a_record_is_written_as_its_reader_would_write_it(
    texts: dict[str, str], details: Any, chain: Any
) -> None:
    record = Record(type="t", organisationId="o", details=details, delegationChain=chain, **texts)
    text = canonical_json(record)
    assert canonical_json(json.loads(text)) == text
