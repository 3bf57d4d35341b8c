"""What happens, as values: the code reports events, and observers decide what to make of them.

``level`` is how loud a log line about the event is, ``text()`` one sentence for people. Reasons may hold
anything that a record or a broker brought: an observer that shows them makes them safe.
"""

from reactive_kafka.observe.events.base import ChannelEvent as ChannelEvent
from reactive_kafka.observe.events.base import Event as Event
from reactive_kafka.observe.events.base import Level as Level
from reactive_kafka.observe.events.base import Observer as Observer
from reactive_kafka.observe.events.base import Observers as Observers
from reactive_kafka.observe.events.base import PartitionEvent as PartitionEvent
from reactive_kafka.observe.events.base import Problem as Problem
from reactive_kafka.observe.events.base import TracedProblem as TracedProblem
from reactive_kafka.observe.events.channel import BrokerAvailable as BrokerAvailable
from reactive_kafka.observe.events.channel import BrokerUnavailable as BrokerUnavailable
from reactive_kafka.observe.events.channel import ChannelFailed as ChannelFailed
from reactive_kafka.observe.events.channel import ChannelPaused as ChannelPaused
from reactive_kafka.observe.events.channel import ChannelStateChanged as ChannelStateChanged
from reactive_kafka.observe.events.channel import CheckpointFenced as CheckpointFenced
from reactive_kafka.observe.events.channel import CheckpointFound as CheckpointFound
from reactive_kafka.observe.events.channel import CommitFailed as CommitFailed
from reactive_kafka.observe.events.channel import ConsumersIdle as ConsumersIdle
from reactive_kafka.observe.events.channel import EndFailed as EndFailed
from reactive_kafka.observe.events.channel import HookFailed as HookFailed
from reactive_kafka.observe.events.channel import KafkaCommitFailed as KafkaCommitFailed
from reactive_kafka.observe.events.channel import KeptAcksDropped as KeptAcksDropped
from reactive_kafka.observe.events.channel import LeadersAway as LeadersAway
from reactive_kafka.observe.events.channel import LeadersBack as LeadersBack
from reactive_kafka.observe.events.channel import LoopBlocked as LoopBlocked
from reactive_kafka.observe.events.channel import NothingMatches as NothingMatches
from reactive_kafka.observe.events.channel import OffsetReset as OffsetReset
from reactive_kafka.observe.events.channel import PlanDropped as PlanDropped
from reactive_kafka.observe.events.channel import PositionsKnown as PositionsKnown
from reactive_kafka.observe.events.channel import PositionsUnknown as PositionsUnknown
from reactive_kafka.observe.events.channel import ReadFailed as ReadFailed
from reactive_kafka.observe.events.channel import Rebalanced as Rebalanced
from reactive_kafka.observe.events.channel import SettledNotStored as SettledNotStored
from reactive_kafka.observe.events.channel import StateDropped as StateDropped
from reactive_kafka.observe.events.channel import StoreAvailable as StoreAvailable
from reactive_kafka.observe.events.channel import StoreUnavailable as StoreUnavailable
from reactive_kafka.observe.events.channel import TopicFound as TopicFound
from reactive_kafka.observe.events.channel import TopicMissing as TopicMissing
from reactive_kafka.observe.events.channel import idle_text as idle_text
from reactive_kafka.observe.events.records import FailureEvent as FailureEvent
from reactive_kafka.observe.events.records import HandlerAbandoned as HandlerAbandoned
from reactive_kafka.observe.events.records import HandlerFailed as HandlerFailed
from reactive_kafka.observe.events.records import HandlerRetried as HandlerRetried
from reactive_kafka.observe.events.records import PoisonSettled as PoisonSettled
from reactive_kafka.observe.events.records import RecordDeadLettered as RecordDeadLettered
from reactive_kafka.observe.events.records import RecordDelayed as RecordDelayed
from reactive_kafka.observe.events.records import RecordFailed as RecordFailed
from reactive_kafka.observe.events.records import RecordIgnored as RecordIgnored
from reactive_kafka.observe.events.records import RecordLeft as RecordLeft
from reactive_kafka.observe.events.records import RecordPoisoned as RecordPoisoned
from reactive_kafka.observe.events.records import RecordWritten as RecordWritten
from reactive_kafka.observe.events.records import SendFailed as SendFailed
from reactive_kafka.observe.events.spark import PROGRESS_EVERY_S as PROGRESS_EVERY_S
from reactive_kafka.observe.events.spark import SparkBatchEnded as SparkBatchEnded
from reactive_kafka.observe.events.spark import SparkBatchEvent as SparkBatchEvent
from reactive_kafka.observe.events.spark import SparkBatchProgress as SparkBatchProgress
from reactive_kafka.observe.events.spark import SparkBatchSplit as SparkBatchSplit
