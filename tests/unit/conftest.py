"""
Properties are tried without a limit of time: what a busy machine takes for one example says nothing about the code.
"""

from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
