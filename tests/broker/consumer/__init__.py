"""Tests of our own consumer."""
