"""What happens, as values: the code reports events, and observers decide what to make of them.

``level`` is how loud a log line about the event is, ``text()`` one sentence for people. Reasons may
hold anything that a record or a broker brought: an observer that shows them makes them safe.
"""

from reactive_kafka.observe.events.base import *  # noqa: F403
from reactive_kafka.observe.events.channel import *  # noqa: F403
from reactive_kafka.observe.events.commits import *  # noqa: F403
from reactive_kafka.observe.events.jobs import *  # noqa: F403
from reactive_kafka.observe.events.reading import *  # noqa: F403
from reactive_kafka.observe.events.records import *  # noqa: F403
