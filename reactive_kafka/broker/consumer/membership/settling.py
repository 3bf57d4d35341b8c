"""How often a member sends heartbeats shortly after a rebalance. Values only.

One rebalance often follows another. A cooperative member gives up partitions, and the group has to
rebalance again. A service stops and is started again. A member learns of a rebalance only from the
answer to a heartbeat, and partitions have no owner until the last member has learned of it.
"""

SETTLING_BEAT_S = 0.25
"""Seconds between two heartbeats while the group settles."""

SETTLING_S = 4.0
"""For how many seconds after a rebalance the group is expected to settle."""
