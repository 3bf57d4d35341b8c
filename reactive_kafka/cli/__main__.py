"""``python -m reactive_kafka.cli``: the command line where the console script is not on the
path.
"""

from reactive_kafka.cli import main

main()
