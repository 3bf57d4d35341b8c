"""Membership in a group: which partitions this member owns, and until when."""
