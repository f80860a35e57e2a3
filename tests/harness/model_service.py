"""A stand-in for the services of models, by which real agent hosts run without any of them: on the loopback,
in the three protocols of Anthropic, Google and OpenAI. The model calls the shell once, then says it is done.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DONE = "done"


class ModelService:
    """`command` is what the model wants to run; `heard` is every request that came, as text."""

    def __init__(self, command: str) -> None:
        self.command = command
        self.heard: list[str] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._send(b"{}", "application/json")

            def do_POST(self) -> None:
                text = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
                service.heard.append(text)
                self._send(*service._answer(self.path, json.loads(text or "{}")))

            def _send(self, body: bytes, media_type: str) -> None:
                self.send_response(200)
                self.send_header("Content-Type", media_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> ModelService:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, path: str, asked: Mapping[str, Any]) -> tuple[bytes, str]:
        if "/responses" in path:
            return _stream(self._openai(asked), named=True)
        if "GenerateContent" in path or "generateContent" in path:
            value = self._google(asked)
            return _stream(iter([value])) if "stream" in path else (_json(value), "application/json")
        if "count_tokens" in path:
            return _json({"input_tokens": 1}), "application/json"
        if "/messages" in path:
            return _stream(self._anthropic(asked), named=True)
        return b"{}", "application/json"

    def _anthropic(self, asked: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        tools = {tool.get("name") for tool in asked.get("tools", ())}
        shell = next((name for name in ("Bash", "bash") if name in tools), None)
        calls = shell is not None and '"tool_result"' not in json.dumps(asked.get("messages"))
        block: dict[str, Any] = {"type": "text", "text": ""}
        delta: dict[str, Any] = {"type": "text_delta", "text": DONE}
        if calls:
            block = {"type": "tool_use", "id": "toolu_01", "name": shell, "input": {}}
            said = json.dumps({"command": self.command, "description": "a step"})
            delta = {"type": "input_json_delta", "partial_json": said}
        message = {"id": "msg_01", "type": "message", "role": "assistant", "model": "m", "content": []}
        usage = {"input_tokens": 1, "output_tokens": 1}
        yield {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}}
        yield {"type": "content_block_start", "index": 0, "content_block": block}
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
        yield {"type": "content_block_stop", "index": 0}
        ends = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
        yield {"type": "message_delta", "delta": ends, "usage": {"output_tokens": 1}}
        yield {"type": "message_stop"}

    def _google(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        part: dict[str, Any] = {"text": DONE}
        if "run_shell_command" in json.dumps(asked.get("tools")) and "functionResponse" not in json.dumps(
            asked.get("contents")
        ):
            arguments = {"command": self.command, "description": "a step"}
            part = {"functionCall": {"name": "run_shell_command", "args": arguments}}
        content = {"role": "model", "parts": [part]}
        counts = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
        return {"candidates": [{"content": content, "finishReason": "STOP"}], "usageMetadata": counts}

    def _openai(self, asked: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        names = [tool.get("name") for tool in asked.get("tools", ())]
        item: dict[str, Any] = {"type": "message", "role": "assistant", "id": "m_1"}
        item["content"] = [{"type": "output_text", "text": DONE}]
        if "function_call_output" not in json.dumps(asked.get("input")):
            key = "cmd" if "exec_command" in names else "command"
            value: Any = (
                self.command if key == "cmd" or "shell_command" in names else ["sh", "-c", self.command]
            )
            name = next(
                (each for each in ("exec_command", "shell_command", "shell") if each in names), "shell"
            )
            item = {"type": "function_call", "id": "f_1", "call_id": "call_01", "name": name}
            item["arguments"] = json.dumps({key: value})
        yield {"type": "response.created", "response": {"id": "r_1"}}
        yield {"type": "response.output_item.done", "output_index": 0, "item": item}
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        usage |= {"input_tokens_details": None, "output_tokens_details": None}
        yield {"type": "response.completed", "response": {"id": "r_1", "usage": usage, "output": [item]}}


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _stream(events: Iterator[dict[str, Any]], *, named: bool = False) -> tuple[bytes, str]:
    lines = [
        (f"event: {event['type']}\n" if named else "") + f"data: {json.dumps(event)}\n\n" for event in events
    ]
    return "".join(lines).encode(), "text/event-stream"
