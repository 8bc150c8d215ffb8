"""Loading of a model: reading, decoding, ordering and checks, up to a `Source`."""
