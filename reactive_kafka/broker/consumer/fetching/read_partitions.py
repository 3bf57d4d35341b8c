"""The partitions that a consumer owns, and what was fetched of them. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping

from reactive_kafka.broker.consumer.fetching.read_partition import FetchedPiece, ReadPartition
from reactive_kafka.errors import BrokerError, NotOwnerError
from reactive_kafka.records import TopicPartition


class ReadPartitions:
    """What a consumer reads, from the end of one rebalance to the end of the next revocation.

    It is the ``PartitionReader`` of a membership.

    Args:
        changed: Called when something else may have to be fetched.
        wake: Ends a waiting poll.
        leader_of: Returns the node that leads a partition; None: it is not known.

    Attributes:
        states: Partition -> its state, for all that are owned.
        held: Those of which records were fetched and not taken. Partitions take turns: those that
            records were taken from come last.
        failed: Those whose error a poll has to return.
        left_bytes: How much of what was fetched is not taken.
        version: Grows with each change that a fetch on its way does not know.
    """

    def __init__(
        self,
        changed: Callable[[], None],
        wake: Callable[[], None],
        leader_of: Callable[[TopicPartition], int | None],
    ) -> None:
        self.states: dict[TopicPartition, ReadPartition] = {}
        self.held: OrderedDict[TopicPartition, ReadPartition] = OrderedDict()
        self.failed: dict[TopicPartition, ReadPartition] = {}
        self.left_bytes = 0
        self.version = 0
        # Grows when a partition starts again with a new state: its end is not known then.
        self.restarts = 0
        self._changed = changed
        self._wake = wake
        self._leader_of = leader_of

    def wake(self) -> None:
        self._wake()

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        """Add partitions. They are not fetched before ``start_at`` has set where each begins."""
        for partition in sorted(partitions):
            if partition not in self.states:
                self.states[partition] = ReadPartition(partition, self._leader_of(partition))
        self._note_change()

    def stop_reading(self, partitions: Collection[TopicPartition]) -> None:
        """Return no more records of these partitions. They are still owned."""
        for state in self._known(partitions):
            state.is_leaving = True
        self._note_change()

    def release(self, partitions: Collection[TopicPartition]) -> None:
        """Remove partitions, and what was fetched of them. Nothing changes for the others."""
        for state in self._known(partitions):
            self.drop(state)
            del self.states[state.partition]
        self.restarts += 1
        self._note_change()

    def let_go(self) -> None:
        """Forget all partitions: the consumer has stopped."""
        self.states.clear()
        self.held.clear()
        self.failed.clear()
        self.left_bytes = 0
        self._note_change()

    def start_at(self, positions: Mapping[TopicPartition, int]) -> None:
        """Set where partitions are read from next, and drop what was fetched of them.

        Raises:
            NotOwnerError: One of them is not owned.
        """
        self.check_owned(positions)
        for partition, offset in positions.items():
            state = self.states[partition]
            self.drop(state)
            state.position = offset
            state.retry_at = 0.0
        self.restarts += 1
        self._note_change()

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Do not fetch these partitions. Ignores those that have not started."""
        self._set_paused(partitions, is_paused=True)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Fetch these partitions again. Ignores those that have not started."""
        self._set_paused(partitions, is_paused=False)

    def positions(self) -> dict[TopicPartition, int]:
        """Return partition -> offset of the next record to take, for those that have started."""
        return {
            partition: state.position
            for partition, state in self.states.items()
            if state.position is not None
        }

    def held_up(self) -> dict[TopicPartition, tuple[int, int]]:
        """Return partition -> (last stable offset, end) where only an open transaction is left.

        Both offsets are those of the last fetch.
        """
        found: dict[TopicPartition, tuple[int, int]] = {}
        for partition, state in self.states.items():
            stable = state.last_stable_offset
            end = state.high_watermark
            # A partition that is not fetched may have offsets of any age.
            if not state.is_flowing or stable is None or stable < 0 or end is None:
                continue
            if state.position is not None and stable <= state.position < end:
                found[partition] = (stable, end)
        return found

    def check_owned(self, partitions: Iterable[TopicPartition]) -> None:
        """Raise NotOwnerError if one of the partitions is not owned."""
        missing = [partition for partition in partitions if partition not in self.states]
        if missing:
            raise NotOwnerError(f"not assigned: {', '.join(map(str, missing))}")

    def find_leaders(self, has_node: Callable[[int], bool]) -> None:
        """Look the leaders of all partitions up again, because the metadata has changed.

        Args:
            has_node: True for the nodes that there are now.
        """
        for partition, state in self.states.items():
            state.leader = self._leader_of(partition)
            if state.replica is not None and not has_node(state.replica):
                state.replica = None
        self._changed()

    def keep(self, state: ReadPartition, piece: FetchedPiece) -> None:
        """Keep what was fetched of a partition until it is taken."""
        state.piece = piece
        self.held[state.partition] = state
        self.left_bytes += piece.left_bytes

    def note_taken(self, piece: FetchedPiece) -> None:
        """Note that records of a piece were taken."""
        left_bytes = piece.reader.left_bytes
        self.left_bytes -= piece.left_bytes - left_bytes
        piece.left_bytes = left_bytes

    def fail(self, state: ReadPartition, error: BrokerError) -> None:
        """Keep why a partition cannot be fetched until a poll has returned it."""
        state.error = error
        self.failed[state.partition] = state

    def drop(self, state: ReadPartition) -> None:
        """Drop what was fetched of a partition, and its error."""
        if state.piece is not None:
            self.left_bytes -= state.piece.left_bytes
        state.piece = None
        state.error = None
        self.held.pop(state.partition, None)
        self.failed.pop(state.partition, None)

    def _set_paused(self, partitions: Collection[TopicPartition], *, is_paused: bool) -> None:
        has_changed = False
        for state in self._known(partitions):
            if state.position is not None and state.is_paused is not is_paused:
                state.is_paused = is_paused
                has_changed = True
        if has_changed:
            self._note_change()

    def _known(self, partitions: Iterable[TopicPartition]) -> list[ReadPartition]:
        return [self.states[partition] for partition in partitions if partition in self.states]

    def _note_change(self) -> None:
        self.version += 1
        self._changed()
