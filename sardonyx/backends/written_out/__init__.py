"""Programs written out as one Python function that calls NumPy.

A call of a compiled program takes some microseconds, whatever it computes, and so does each op in
Python. Where a program does little, NumPy alone is faster than both: `noted_array.py` notes what
ops do with arrays, `source.py` writes it as a function, and `prices.py` says whether that is small.

A larger program can be written out too, where it is nearly all kernels or its sizes change:
`noted_steps.py` notes its steps without computing them, and `attention.py` joins what is attention.
"""
