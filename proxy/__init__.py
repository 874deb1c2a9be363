"""Manometer's measuring proxy.

This package imports nothing: `import proxy` must stay free of side effects, because the pure core
(`proxy.meter`) is imported by the load generator as well. Start reading at `proxy.forward`: it is
the life of one request; `proxy.meter` says what every number means.
"""
