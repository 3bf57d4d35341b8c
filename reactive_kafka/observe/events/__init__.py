"""Events: values that the code reports to observers, which decide what to do with them.

``level`` is the level of an event's log line, and ``text()`` is a sentence for people. A reason may
contain any text that came from a record or a broker. An observer that shows it must escape it.
"""

from reactive_kafka.observe.events.base import *  # noqa: F403
from reactive_kafka.observe.events.channel_events import *  # noqa: F403
from reactive_kafka.observe.events.commits import *  # noqa: F403
from reactive_kafka.observe.events.reading import *  # noqa: F403
from reactive_kafka.observe.events.record_events import *  # noqa: F403
from reactive_kafka.observe.events.scheduled_jobs import *  # noqa: F403
