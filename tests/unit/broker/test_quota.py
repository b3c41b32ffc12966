"""What clients may hold of one kind."""

import weakref

from tidelog.broker.quota import LITTLE_BYTES, Quota


class Client:
    def __init__(self, address: str) -> None:
        self.address = address


def test_an_address_has_half_of_all_and_each_connection_a_little() -> None:
    limit = 10 * LITTLE_BYTES
    quota = Quota(limit)
    first, second, third = Client("here"), Client("here"), Client("there")
    assert quota.room_bytes(first) == limit // 2
    held = [quota.hold(first, limit // 2)]
    assert [quota.room_bytes(client) for client in (first, second, third)] == [0, LITTLE_BYTES, limit // 2]
    assert quota.hold(second, LITTLE_BYTES + 1) is None
    held.append(quota.hold(second, LITTLE_BYTES))
    assert quota.room_bytes(third) == limit // 2 - LITTLE_BYTES, "that is left of all"
    held.append(quota.hold(third, limit // 2 - LITTLE_BYTES - 1))
    assert not quota.is_full
    assert quota.room_bytes(third) == 1
    held.append(quota.hold(third, 1))
    assert quota.is_full
    assert quota.hold(third, 1) is None
    held.append(quota.hold(Client("elsewhere"), 3 * limit))  # alone: whatever it asks for
    assert all(held)
    for hold in held:
        assert hold is not None
        hold.give_back()
    assert quota.total_bytes == 0
    assert quota.room_bytes(first) == limit // 2


def test_a_client_that_holds_nothing_is_forgotten() -> None:
    quota, client = Quota(10 * LITTLE_BYTES), Client("here")
    hold = quota.hold(client, 1)
    assert hold is not None
    hold.give_back()
    gone = weakref.ref(client)
    del hold, client
    assert gone() is None


def test_a_little_is_there_for_each_until_twice_the_limit_is_held() -> None:
    limit = 2 * LITTLE_BYTES
    quota = Quota(limit)
    assert quota.hold(Client("here"), 2 * limit - LITTLE_BYTES)
    late, later = Client("there"), Client("there")
    assert quota.room_bytes(late) == LITTLE_BYTES
    assert quota.hold(late, LITTLE_BYTES - 1)
    assert quota.room_bytes(later) == 1
    assert quota.hold(later, 2) is None
