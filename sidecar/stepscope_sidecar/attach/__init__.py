"""
Profilers that the sidecar runs against a process, by its pid, instead of inside it. Only when somebody asks for one.

Read ``tools`` (what such a profiler is), ``driver`` (its process), ``target`` (the process that it records) and
``attachments`` (which of them run now, and for which windows). ``companions`` are processes that a person named.
"""
