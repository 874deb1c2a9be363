"""Readings -> what a report says. Pure: no clock, no socket, no file; randomness is an argument.

One module for each kind of statement (percentiles are `proxy.meter.quantile`, the same for proxy and reports):

- `interval`: how sure one can be of them;
- `span`: which stretch of a run is measured, and the throughput in it;
- `metric`: what is measured of one exchange, with its unit and which way is better;
- `doubt`: what makes a level invalid, and what one must know to read it;
- `level`: everything about one level of load, folded once;
- `scaling`: levels -> the scalability law, its knee, and the capacity;
- `pairing`: two backends asked in pairs -> a ratio, a verdict, a decision.
"""
