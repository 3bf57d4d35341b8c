"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

All of it is pure. Read ``member_rules.py`` first: the states of a member, the answers that it
understands, and what the shell around it must do. ``subscription_codec.py`` has the bytes that
members send each other through the coordinator. ``assignors/`` has the rules by which the leader
of a group distributes partitions.
"""
