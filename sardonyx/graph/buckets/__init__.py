"""Shape buckets: one program for many sizes, on padded inputs, with a proof that it is exact."""
