"""A port before a service that tests shut and open: shut, nobody is there, and who was connected is cut off.

    with Gate(service.port) as gate:
        gate.shut()
        gate.open()

The port stays the same throughout.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType


class Gate:
    """See the module. `cut_answers`: requests arrive, and their answers are lost."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.cut_answers = False
        self.connections = 0
        self._serve()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def open(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._serve()

    def shut(self) -> None:
        # A thread in `accept` keeps a closed socket listening until it is shut down.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(60)
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            _end(*pair)

    def _serve(self) -> None:
        self._thread = threading.Thread(target=self._accept, args=(self._listener,), daemon=True)
        self._thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self.connections += 1
            service = socket.create_connection(("127.0.0.1", self._target))
            with self._lock:
                self._pairs.append((client, service))
            for source, sink, is_answer in ((client, service, False), (service, client, True)):
                threading.Thread(target=self._pass, args=(source, sink, is_answer), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while content := source.recv(1 << 16):
                if is_answer and self.cut_answers:
                    break
                sink.sendall(content)
        _end(source, sink)

    def __enter__(self) -> Gate:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shut()


def _end(*sockets: socket.socket) -> None:
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
