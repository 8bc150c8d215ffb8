"""The inputs of a call, from files, images and random numbers."""
