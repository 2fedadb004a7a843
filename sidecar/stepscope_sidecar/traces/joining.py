"""
Puts two traces of one recording into one table: what its profiler wrote, and what stands in a file beside it.
"""

from dataclasses import replace

import numpy as np

from stepscope_sidecar.traces.trace import Points, Trace, Tracks


def join(first: Trace, second: Trace) -> Trace:
    """
    The events of both, under the header of the first. Their times are of one clock.
    """
    places = {name: place for place, name in enumerate(first.names)}
    renamed = np.array([places.setdefault(name, len(places)) for name in second.names], dtype=np.int32)
    moved = len(first.tracks)
    tracks = Tracks(
        **{
            field: np.concatenate([getattr(first.tracks, field), getattr(second.tracks, field)])
            for field in ("pid", "tid", "device", "stream", "on_device")
        }
    )
    points = Points(
        correlation=np.concatenate([first.points.correlation, second.points.correlation]),
        track=np.concatenate([first.points.track, second.points.track + np.int32(moved)]),
        at_ns=np.concatenate([first.points.at_ns, second.points.at_ns]),
    )
    return replace(
        first,
        names=tuple(places),
        tracks=tracks,
        points=points,
        name=np.concatenate([first.name, renamed[second.name] if len(second) else second.name]),
        track=np.concatenate([first.track, second.track + np.int32(moved)]),
        collectives={
            **first.collectives,
            **{row + len(first): collective for row, collective in second.collectives.items()},
        },
        start_ns=np.concatenate([first.start_ns, second.start_ns]),
        duration_ns=np.concatenate([first.duration_ns, second.duration_ns]),
        kind=np.concatenate([first.kind, second.kind]),
        correlation=np.concatenate([first.correlation, second.correlation]),
        external_id=np.concatenate([first.external_id, second.external_id]),
    )
