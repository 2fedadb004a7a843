"""
How the sidecar's own process is: memory, CPU time, errors that it logged, and what is queued in it.

Owns looking at this process; these series begin anew with each, unlike all that is counted in the store.
"""

import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from stepscope_sidecar.metrics import Gauge

STORE_PARTS = ("", "-wal", "-shm")
"""What the names of the store's files end in."""


class Errors(logging.Handler):
    """
    Counts what is logged as an error, and notes when.
    """

    def __init__(self) -> None:
        super().__init__(level=logging.ERROR)
        self.count = 0
        self.last = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """
        Count ``record``. On any thread, one at a time.
        """
        self.count += 1
        self.last = record.created


class Health:
    """
    This process, as far as metrics tell of it.
    """

    def __init__(self, *, store: Path, queues: Mapping[str, Callable[[], int]]) -> None:
        """
        ``queues`` tell their length, by name. Errors count from now on, until :meth:`close`.
        """
        self._store = store
        self._queues = queues
        self._began = time.time()
        self._errors = Errors()
        logging.getLogger().addHandler(self._errors)

    def close(self) -> None:
        """
        Count no more errors.
        """
        logging.getLogger().removeHandler(self._errors)

    def gauges(self) -> list[Gauge]:
        """
        The values now.
        """
        found = [
            Gauge(name="stepscope_sidecar_start_timestamp_seconds", value=self._began),
            Gauge(name="stepscope_sidecar_resident_memory_bytes", value=resident()),
            Gauge(name="stepscope_sidecar_cpu_seconds_total", value=time.process_time()),
            Gauge(name="stepscope_sidecar_errors_total", value=self._errors.count),
            Gauge(name="stepscope_store_bytes", value=size(self._store)),
        ]
        if self._errors.last:
            found.append(Gauge(name="stepscope_sidecar_last_error_timestamp_seconds", value=self._errors.last))
        found += [
            Gauge(name="stepscope_queue_length", value=length(), labels={"queue": name})
            for name, length in self._queues.items()
        ]
        return found


def resident() -> int:
    """
    Bytes of memory that this process has in use; 0 where /proc does not say.
    """
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def size(store: Path) -> int:
    """
    Bytes of the store's files.
    """
    total = 0
    for part in STORE_PARTS:
        try:
            total += store.with_name(store.name + part).stat().st_size
        except OSError:
            continue
    return total
