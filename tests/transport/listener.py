"""A listener on loopback that serves each connection in a thread."""

import socket
import threading
from collections.abc import Callable


class Listener:
    """Calls ``serve`` with each connection, in a separate thread; ``serve`` closes it."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self._serve = serve
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self._socket.getsockname()[1]
        self._open = True
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop accepting connections.

        The thread must end before the socket is closed. Otherwise a signal, such as SIGCONT, would
        make it accept again on the same file descriptor, which may be another socket by then.
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
