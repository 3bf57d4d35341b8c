"""Ours beside other ways to read Kafka, of Python and of the JVM: their speed, and what they lose
and repeat.
"""
