"""What a backend must offer so that one compiled program serves many sizes, and which axes it pads.

A backend that compiles implements the protocols; the graph's buckets use them.
"""
