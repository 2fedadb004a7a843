"""
Keeps a recording of which only its profiler knows how to read it: measured, hashed, and otherwise as it is.
"""

from stepscope_sidecar.artifacts import Artifact, InvalidArtifact, Verdict, tree
from stepscope_sidecar.jobs import Job


def make(job: Job) -> Artifact:
    """
    The file or folder as it is. Whether it is complete, nobody here can know; that it is not empty, anybody can.
    """
    path = tree.raw(job.folder, job.closed.artifact)
    size, sha256 = tree.seal(path)
    if not size:
        raise InvalidArtifact("the recording is empty")
    return Artifact(path=path, bytes=size, sha256=sha256, verdict=Verdict(complete=None))
