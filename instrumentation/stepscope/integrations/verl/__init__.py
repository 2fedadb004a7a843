"""
verl, without a line changed in it: steps, spans and windows of its asynchronous trainers, workers and rollout servers.

verl loads :mod:`plugin` in every process that imports it. Read :mod:`targets` first: the one table of what of verl is
touched. ``hooks`` waits for its modules, ``patching`` puts the wrappers in, ``loop`` makes the boundary calls; the
wrappers are in ``driver``, ``trainer``, ``fully_async``, ``worker`` and ``server``. Nothing here imports verl.
"""
