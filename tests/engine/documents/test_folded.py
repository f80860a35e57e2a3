"""A comment in an expression ends where it is seen to end, or the document is refused."""

from __future__ import annotations

import pytest

from engine.documents.policy import load_policy
from engine.errors import DocumentError

HEAD = "apiVersion: governance/v1\nkind: Policy\npolicyId: p\nname: x\naction: block\nmatchConditions:\n"
BOTH = '''toolName == "a" // only a
      || toolName == "b"'''


@pytest.mark.parametrize(
    "written",
    [
        f"  - expression: >-\n      {BOTH}\n",
        f"  - expression: >\n      {BOTH} // and b\n",
        f"  - expression: {BOTH}\n",
        f"  - >-\n      {BOTH}\n",
        f"  - {{expression: '{BOTH}'}}\n",
        '  - expression: "toolName == \\"a\\" // only a\n      || toolName == \\"b\\""\n',
        f"  - expression: >-\n      // ours\n      {BOTH}\n",
    ],
)
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_lines_behind_a_comment_that_yaml_joins_are_told(written: str, ending: str) -> None:
    with pytest.raises(DocumentError) as caught:
        load_policy((HEAD + written).replace("\n", ending).encode(), "p.yaml")
    assert "folded_comment" in {each.code for each in caught.value.problems}
    assert "write the expression as `|-`" in str(caught.value) and "p.yaml:7:" in str(caught.value)


@pytest.mark.parametrize(
    "written",
    [
        f"  - expression: |-\n      // ours\n      {BOTH}\n",
        '  - expression: toolName == "a" // only a\n',
        '  - expression: >-\n      toolName == "a"\n      || toolName == "b" // and b\n',
        '  - expression: >-\n      toolName == "a" // only a\n\n      || toolName == "b"\n',
        '  - expression: >-\n      toolName == "http://a"\n      || toolName == "b"\n',
        "  - expression: 'toolName == \"it''s\"\n\n      // that''s it'\n",
        '  - expression: "toolName == \\"a\\" // \\xE9 \\\\d \\u20AC\\n\\\n  \\  || toolName == \\"b\\""\n',
    ],
)
def test_what_stays_as_it_is_seen_is_taken(written: str) -> None:
    expression = load_policy((HEAD + written).encode(), "p.yaml").policy.conditions[0].expression
    assert expression is not None and "toolName" in expression
