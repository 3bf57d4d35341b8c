"""aiokafka behind the seam: the only room that imports it, translates its errors and contains its
traps.
"""
