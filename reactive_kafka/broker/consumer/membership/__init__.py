"""Membership in a group: who owns which partitions, and in which generation."""
