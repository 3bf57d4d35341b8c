"""What a rebalance brings and takes: an assignment's hooks, its deadlines, and where reading starts."""
