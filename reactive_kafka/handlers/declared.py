"""Everything that an application, or a router, was decorated with."""

from __future__ import annotations

from collections.abc import Callable

from reactive_kafka.handlers.declared_functions import DeclaredFunctions
from reactive_kafka.handlers.declared_hooks import DeclaredHooks
from reactive_kafka.outgoing.emitter import Emitter
from reactive_kafka.outgoing.target import Target
from reactive_kafka.tasks import HomeLoop

NOTHING_DECLARED = (
    "the application has no handler, source or hook: is the module that declares them imported?"
)


class Declared:
    """What was declared on an application and on the routers that it includes.

    A router that is not included has its own. When it is included, all of it moves to the
    application, and the router declares there from then on.

    Args:
        owner: The application or router.
        check: Called with each decoration that takes effect at the next start. RuntimeError: the
            application is running.
        check_emitter: Called with the channel of an emitter. ConfigError: no such channel is
            configured, as far as that is known.
        outgoing: Returns what writes to a channel. ChannelClosedError: the application does not
            run.
    """

    def __init__(
        self,
        owner: object,
        check: Callable[[str], None],
        check_emitter: Callable[[str], None],
        outgoing: Callable[[str], tuple[Target, HomeLoop]],
    ) -> None:
        # Channel -> its emitter. It has several where included routers have made some, too.
        self.emitters: dict[str, list[Emitter]] = {}
        self.functions = DeclaredFunctions()
        self.hooks = DeclaredHooks()
        self.owner = owner
        self.check = check
        self.check_emitter = check_emitter
        self.outgoing = outgoing
        # Of the application or router that includes the owner.
        self._home: Declared | None = None

    @property
    def whole(self) -> Declared:
        """Where the owner declares now: in its application, if one includes it."""
        return self if self._home is None else self._home.whole

    @property
    def warning(self) -> str | None:
        """A warning that nothing is declared, which no application that is run can mean."""
        is_used = self.functions or self.emitters or self.hooks
        return None if is_used else NOTHING_DECLARED

    def join(self, home: Declared) -> None:
        """Move everything to *home*.

        Raises:
            ConfigError: It does not fit what is declared there.
        """
        for name in self.emitters:
            home.check_emitter(name)
        home.hooks.check_fits(self.hooks)
        home.functions.take(self.functions)
        home.hooks.take(self.hooks)
        for name, emitters in self.emitters.items():
            home.emitters.setdefault(name, []).extend(emitters)
        self._home = home
