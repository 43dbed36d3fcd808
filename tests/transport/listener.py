"""Accept connections on loopback in threads, until it is closed."""

import socket
import threading
from collections.abc import Callable


class Listener:
    """Serves each connection in a thread of its own; ``serve`` gets it, and closes it."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self._serve = serve
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self._socket.getsockname()[1]
        self._open = True
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Accept no more.

        The thread ends before the socket is closed. Otherwise a signal, say after a stop of the
        process, would let it accept again by the same number, which is another socket by then.
        """
        if self._open:
            self._open = False
            socket.create_connection(("127.0.0.1", self.port)).close()
            self._thread.join()
            self._socket.close()

    def _accept(self) -> None:
        while True:
            client, _ = self._socket.accept()
            if not self._open:
                client.close()
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()
