"""
The errors a caller can handle. All of them stop a start; none is raised into a running training loop.
"""


class StepscopeError(Exception):
    """
    Base of all errors of this package.
    """


class ConfigurationError(StepscopeError, ValueError):
    """
    A setting has a value that cannot be used; the message names the setting, the value and the likely fix.
    """


class SelectionError(ConfigurationError):
    """
    A step or rank selection does not follow its grammar.
    """


class WireError(StepscopeError):
    """
    A message on the control socket is not one of ours.
    """
