"""aiokafka behind the seam. Only this room imports it, and contains its traps."""
