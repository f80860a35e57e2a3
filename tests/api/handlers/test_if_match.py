"""The entity tag that comes back, as it was sent or as a proxy changed it on its way."""

from __future__ import annotations

import pytest

from api.handlers.policies import if_match
from api.http.exchange import Values
from api.http.problems import ApiError


def read(tag: str) -> str | None:
    return if_match(Values(path={}, query={}, body=None, headers={"if-match": tag}))


@pytest.mark.parametrize(
    "tag",
    ['"1-9c97"', 'W/"1-9c97"', ' "1-9c97" ', '"1-9c97-gzip"', 'W/"1-9c97-br"', '"1-9c97-zstd"'],
)
def test_a_proxy_that_compresses_keeps_nobody_from_changes(tag: str) -> None:
    """nginx makes a tag weak; Apache and Caddy add the encoding."""
    assert read(tag) == "1-9c97"


@pytest.mark.parametrize("tag", ["1-9c97", '""', 'W/""', '"a", "b"', 'W/"', 'w/"a"', '"a"b"'])
def test_what_is_no_tag_is_refused(tag: str) -> None:
    with pytest.raises(ApiError, match="must be the one `ETag`"):
        read(tag)
