"""From what a user has to a checked `Source`: reading, decoding, ordering, and one look over it."""
