"""
What profiling cost, for pages of a run that no controller estimates: reckoned on a thread, and kept.

A page does not wait for it: the first estimate looks at every span of a long run.
"""

import threading
from collections.abc import Mapping
from pathlib import Path

from stepscope_sidecar.costs import Costs
from stepscope_sidecar.errors import StoreError
from stepscope_sidecar.overhead import Estimate

PATIENCE = 0.1
"""Seconds that a page waits: a short run's estimate is there by then."""


class Reckoned:
    """
    The estimates of one store. May be asked on several threads.
    """

    def __init__(self, store: Path) -> None:
        """
        Nothing has been reckoned yet.
        """
        self._store = store
        self._costs = Costs(store)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._of: tuple[float, ...] = ()
        self._found: Mapping[str, Estimate] | None = None

    def estimates(self) -> Mapping[str, Estimate] | None:
        """
        The last ones, or None while there are none yet.
        """
        with self._lock:
            stamp = self._stamp()
            if stamp != self._of and (self._thread is None or not self._thread.is_alive()):
                self._of = stamp
                self._thread = threading.Thread(target=self._reckon, name="overhead", daemon=True)
                self._thread.start()
            thread = self._thread
        if thread is not None:
            thread.join(PATIENCE)
        return self._found

    def _reckon(self) -> None:
        try:
            self._found = self._costs.refresh()
        except StoreError:
            # It is asked again when the store has changed; the page says of itself that it cannot be read.
            self._found = {}

    def _stamp(self) -> tuple[float, ...]:
        paths = (self._store, self._store.with_name(f"{self._store.name}-wal"))
        return tuple(path.stat().st_mtime for path in paths if path.exists())
