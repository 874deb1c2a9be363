"""The rest of the world: load generator clients on one side, simulated backends on the other.

Of `proxy` it imports `proxy.meter` and `proxy.upstream` only, so that both ends of the pipe hold
the same meter to the same bytes and their difference is the proxy's overhead.
"""
