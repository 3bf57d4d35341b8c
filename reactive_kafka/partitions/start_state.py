"""Where the reading of one partition is to start, and whether it may. No I/O, no clock."""

from __future__ import annotations

from reactive_kafka.partitions.start_choice import StartChoice


class StartState:
    """The choices for one partition that have not been carried out.

    A seek of the user's wins over the settings and over a restart.
    """

    __slots__ = ("configured", "is_allowed", "sought")

    def __init__(self, configured: StartChoice | None) -> None:
        # By the settings or a restart; holds until reading has started once.
        self.configured = configured
        # By a seek, in this assignment.
        self.sought: StartChoice | None = None
        # The hooks of the assignment have run.
        self.is_allowed = False

    @property
    def choice(self) -> StartChoice | None:
        """Where reading is to start, if that was chosen: by a seek, else by the settings."""
        return self.sought or self.configured

    def begin_assignment(self) -> None:
        """The partition was assigned; the hooks of this assignment have not run."""
        self.is_allowed = False

    def end_assignment(self) -> None:
        """The partition is about to go: a seek holds for one assignment only."""
        self.sought = None

    def allow(self) -> None:
        """The hooks of the assignment have run."""
        self.is_allowed = True

    def seek(self, choice: StartChoice) -> None:
        """Note a seek to another place."""
        self.sought = choice

    def carried_out(self) -> None:
        """Reading starts where it was chosen."""
        self.sought = None
        self.configured = None

    def forget_configured(self) -> None:
        """Forget where the settings or a restart want to start: the group's position decides."""
        self.configured = None
