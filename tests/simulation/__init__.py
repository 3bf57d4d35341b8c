"""Whole applications on a virtual clock and the in-memory broker, with faults drawn from a seed."""
