"""Tests of schema registries: ours, and a small server that speaks the same REST API as
Confluent's.
"""
