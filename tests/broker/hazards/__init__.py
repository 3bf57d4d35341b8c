"""Each hazard H1-H15 of aiokafka, shown twice: that the client alone does it, and that the seam
does not pass it on.
"""
