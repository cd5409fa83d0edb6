"""A slow line to a server: what it answers comes late."""

from __future__ import annotations

import contextlib
import socket
import threading
import time


class SlowLine:
    """Passes bytes between whoever connects to ``uri`` and a port of this machine, answers held up."""

    def __init__(self, port: int, delay: float) -> None:
        """``delay``: seconds before each piece of an answer is passed on."""
        self._port, self._delay = port, delay
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.uri = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._port))
                threading.Thread(target=_pass_on, args=(near, far, 0.0), daemon=True).start()
                threading.Thread(target=_pass_on, args=(far, near, self._delay), daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket, delay: float) -> None:
    with contextlib.suppress(OSError):  # one side is gone
        while data := source.recv(1 << 16):
            time.sleep(delay)
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
