"""Rewrites: each replaces steps by fewer steps, or by less work at each call. One file each."""
