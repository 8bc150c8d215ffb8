"""Shape buckets: one program for many sizes, on inputs padded up to them, proved to be exact."""
