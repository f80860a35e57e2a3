"""How spans go to their receiver: what that answers is read to a bound, and leads nowhere else.

The exporter takes whatever comes into memory, without end if it has none, and its packed parts unpacked: a
receiver that is broken, or another one than was meant, would end the service. What the extra `otel` brings is
imported when it is asked for.
"""

from __future__ import annotations

import io
from typing import Any, Final

MOST_ANSWER_BYTES: Final = 64 << 10


def bounded_session() -> Any:
    """A session of `requests`, but for the end of an answer that is longer, which nobody needs."""
    import requests
    import urllib3

    class BoundedSession(requests.Session):
        def request(self, *given: Any, **named: Any) -> requests.Response:
            """The headers hold the receiver's secret, so no redirect is followed."""
            answer = super().request(*given, **{**named, "stream": True, "allow_redirects": False})
            with answer:
                try:
                    kept = answer.raw.read(MOST_ANSWER_BYTES, decode_content=False)
                except urllib3.exceptions.HTTPError as error:
                    raise requests.ConnectionError(error) from None
            answer.raw = io.BytesIO(kept)
            return answer

    return BoundedSession()
