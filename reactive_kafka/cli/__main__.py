"""``python -m reactive_kafka.cli``, for when the console script is not on the path."""

from reactive_kafka.cli import main

main()
