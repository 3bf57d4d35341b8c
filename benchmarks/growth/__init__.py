"""What larger numbers of partitions, members, channels and records would cost, by a model checked
at smaller ones.
"""
