"""One app, unchanged, in every backend's own words: canonical diffusion parameters in, a backend's fields out.

    parameters   what a client asked for, in any of four ways
    row          what can be said of a backend
    table        what is said of each: data, never a branch on a name
    custom       a user's own dialects and overrides, from the configuration
    conversion   steps, blocks and width, each formula once
    placement    parameters to fields: converted, rounded
    translation  the changes to one body, and what is told about them

Pure: a body and a row in, a `Translation` out. `proxy.body` makes the bytes.
"""

from .custom import DialectError, resolve
from .parameters import HEADER, ParameterError, Parameters, read
from .row import Dialect, Field
from .table import BUILT_IN
from .translation import Translation, translate

__all__ = [
    "BUILT_IN",
    "HEADER",
    "Dialect",
    "DialectError",
    "Field",
    "ParameterError",
    "Parameters",
    "Translation",
    "read",
    "resolve",
    "translate",
]
