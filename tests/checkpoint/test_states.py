"""Which state a record sees, and which goes with a position."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.checkpoint.states import States


def nothing_open(_: int) -> bool:
    return False


def everything_open(_: int) -> bool:
    return True


def test_a_record_sees_its_own_state_else_that_of_the_nearest_acked_one_before_it() -> None:
    states = States("base")
    states.set(5, 0, "five")
    states.set(7, 1, "seven")
    assert states.get(5, everything_open) == "five"
    assert states.get(6, nothing_open) == "five"
    assert states.get(6, everything_open) == "base"
    assert states.get(9, lambda arrival: arrival == 1) == "five"
    assert states.get(4, nothing_open) == "base"


def test_the_messages_of_one_batch_see_what_those_before_them_have_set_and_others_do_not() -> None:
    states = States(None)
    states.set(1, 0, "open, of before")
    states.begin([2, 3, 4])
    assert states.get(2, everything_open) is None
    states.set(2, 1, "two")
    assert states.get(4, everything_open) == "two"
    assert states.get(5, everything_open) is None


def test_a_call_that_begins_again_forgets_what_the_earlier_one_has_set() -> None:
    states = States("base")
    states.set(5, 0, "five")
    states.begin([5])
    assert states.get(5, nothing_open) == "base"
    assert states.at(6) == "base"


def test_a_state_can_be_taken_away() -> None:
    states = States("base")
    states.set(5, 0, None)
    assert states.at(6) is None
    assert states.at(5) == "base"


def test_what_another_call_has_stored_is_the_state_from_there_on() -> None:
    states = States("base")
    states.set(5, 0, "five")
    states.set(6, 1, "six")
    states.found(6, "of before")
    assert states.at(6) == "of before"
    assert states.at(7) == "six"


@given(st.data())
def test_the_state_of_a_position_is_what_the_highest_record_before_it_has_set(data: st.DataObject) -> None:
    states, model = States("base"), dict[int, str | None]()
    stored = 0
    for _ in range(data.draw(st.integers(0, 30))):
        offset = data.draw(st.integers(stored, 30))
        match data.draw(st.sampled_from(["set", "drop", "stored"])):
            case "set":
                model[offset] = data.draw(st.sampled_from([None, "a", "b"]))
                states.set(offset, offset, model[offset])
            case "drop":
                model.pop(offset, None)
                states.drop(offset)
            case "stored":
                stored = offset
                states.stored(stored)
                model = {max([at for at in model if at < stored], default=-1): expected(model, stored)} | {
                    at: text for at, text in model.items() if at >= stored
                }
        for position in range(stored, 32):
            assert states.at(position) == expected(model, position)
            assert states.get(position, nothing_open) == expected(model, position + 1)


def expected(model: dict[int, str | None], position: int) -> str | None:
    before = [offset for offset in model if offset < position]
    return model[max(before)] if before else "base"
