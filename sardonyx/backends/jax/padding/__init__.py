"""How padding spreads through a program, proved equation by equation.

A program is traced twice: for the sizes of a call, and for larger ones. `proof` walks both traces
side by side. Each of JAX's primitives has a rule, which finds the elements of its results that
belong to the smaller program, and masks operands where padding would reach them.
"""
