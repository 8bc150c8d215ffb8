"""How padding spreads through a program: what of each value is true, proved equation by equation.

A program is traced twice, for the sizes of a call and for larger ones. `proof` walks both traces at
once; each of JAX's primitives has a rule that tells which elements of its results are those of the
smaller program, and what it must mask so that this holds.
"""
