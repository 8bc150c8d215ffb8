"""One model over many devices and hosts: which axis of which array lies along which of a mesh."""
