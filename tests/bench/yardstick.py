"""The bare ASGI app that everything is measured against: it reads the body and answers 200, nothing else.

Served as the service is (uvicorn, uvloop, httptools, no access log), so the ratio to it says what deciding
and recording cost, whatever the machine.
"""

from __future__ import annotations

from typing import Any

ANSWER = b'{"processed":true,"toolCallStatus":"allowed","reason":"no policy matched","matchedPolicies":[]}'
HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(ANSWER))]


async def application(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    while (await receive()).get("more_body", False):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": ANSWER})
