"""
The trainer's ranks as one: sum, broadcast, and an end that no rank waits for in vain.

Owns the process group of torch.distributed, with the backend gloo.
"""

import io
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed
from torch._C._distributed_c10d import TCPStore

PATIENCE = timedelta(minutes=5)
"""Longer than any warm-up or acknowledgement deadline of the job; a rank that died is noticed sooner, by its socket."""


class Ranks:
    """
    Rank ``rank`` of ``world``. Rank 0 opens the rendezvous, then every rank joins.
    """

    def __init__(self, *, rank: int, world: int) -> None:
        """
        Nothing is connected yet.
        """
        self.rank = rank
        self.world = world
        self._store: TCPStore | None = None

    def open(self, host: str) -> int:
        """
        On rank 0: listen on a free port of ``host``, and return it.
        """
        self._store = TCPStore(host, 0, self.world, is_master=True, timeout=PATIENCE, wait_for_workers=False)
        return int(self._store.port)

    def join(self, host: str, port: int) -> None:
        """
        Connect with the others.
        """
        if self._store is None:
            self._store = TCPStore(host, port, self.world, is_master=False, timeout=PATIENCE)
        distributed.init_process_group(
            "gloo", store=self._store, rank=self.rank, world_size=self.world, timeout=PATIENCE
        )

    def sum(self, tensor: Tensor) -> None:
        """
        Sum ``tensor`` in place over all ranks.
        """
        if self.world > 1:
            distributed.all_reduce(tensor)

    def broadcast(self, state: dict[str, Any]) -> dict[str, Any]:
        """
        Rank 0's ``state``: tensors and plain values.
        """
        if self.world == 1:
            return state
        buffer = io.BytesIO()
        if self.rank == 0:
            torch.save(state, buffer)
        size = torch.tensor([buffer.tell()])
        distributed.broadcast(size, 0)
        data = torch.zeros(int(size), dtype=torch.uint8)
        if self.rank == 0:
            data = torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)
        distributed.broadcast(data, 0)
        found: dict[str, Any] = torch.load(io.BytesIO(data.numpy().tobytes()), weights_only=True)
        return found

    def barrier(self) -> None:
        """
        Wait for the others.
        """
        if self.world > 1:
            distributed.barrier()

    def close(self) -> None:
        """
        Leave; others that wait for this rank fail at once instead of waiting.
        """
        if distributed.is_initialized():
            distributed.destroy_process_group()
        self._store = None
