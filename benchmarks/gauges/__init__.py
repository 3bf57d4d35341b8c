"""What is no throughput: latency, start, idling, rebalances, ticks. One module a kind; each run is
a process.
"""
