"""How often a member asks its group what is new, shortly after a change. Values only.

One change follows another: a cooperative member gives up partitions, which makes the group
rebalance once more; a service that was stopped is started again. A member learns of a change only
by the answer to a heartbeat, and until the last member has learnt of it, partitions wait.
"""

SETTLING_BEAT_S = 0.25
"""Between two heartbeats, while the group settles."""

SETTLING_S = 4.0
"""How long after a change a group settles."""
