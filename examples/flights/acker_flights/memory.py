"""Peak memory of this process and all its descendants."""

import threading

import psutil

_EVERY_SECONDS = 0.5


class PeakMemory:
    """A thread that samples the resident memory of the process tree twice a second.

    Shared pages count once for each process, so the figure is an upper bound.
    """

    def __init__(self) -> None:
        self._peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="acker-memory", daemon=True)

    @property
    def peak_mib(self) -> int:
        """Highest sampled sum, in MiB."""
        return self._peak // 2**20

    def __enter__(self) -> "PeakMemory":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        me = psutil.Process()
        while not self._stop.is_set():
            total = 0
            for process in [me, *me.children(recursive=True)]:
                try:
                    total += process.memory_info().rss
                except psutil.Error:
                    continue  # the process has ended in the meantime
            self._peak = max(self._peak, total)
            self._stop.wait(_EVERY_SECONDS)
