"""Protocols by which one compiled program serves many sizes, and descriptions of padded axes.

A backend that compiles implements the protocols; the graph's buckets use them.
"""
