"""What a rebalance brings and takes: hooks, deadlines, and where reading starts."""
