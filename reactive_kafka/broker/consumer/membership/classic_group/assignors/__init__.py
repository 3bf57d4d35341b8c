"""The assignors of classic groups: which member gets which partitions. Pure.

``assignor.py`` has the protocol that each of them follows, also a user's own one.
"""
