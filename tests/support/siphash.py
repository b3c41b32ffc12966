"""SipHash-2-4 of 128 bits, in plain Python from its description: the judge of the hash that compaction uses.

Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012, and the longer output that they added. Knows nothing of
the project.
"""


def _left(word: int, bits: int) -> int:
    return (word << bits) % (1 << 64) + (word >> (64 - bits))


def _rounds(state: list[int], times: int) -> None:
    for _ in range(times):
        # Each half step adds one word to another, turns it, and mixes it in.
        for to, by, turn, half in ((0, 1, 13, True), (2, 3, 16, False), (0, 3, 21, False), (2, 1, 17, True)):
            state[to] = (state[to] + state[by]) % (1 << 64)
            state[by] = _left(state[by], turn) ^ state[to]
            if half:
                state[to] = _left(state[to], 32)


def siphash128(secret: bytes, message: bytes) -> bytes:
    """Hash a message under a secret of 16 bytes."""
    low, high = (int.from_bytes(secret[at : at + 8], "little") for at in (0, 8))
    names = b"somepseudorandomlygeneratedbytes"
    state = [int.from_bytes(names[at : at + 8], "big") for at in range(0, 32, 8)]
    state = [word ^ key for word, key in zip(state, (low, high, low, high), strict=True)]
    state[1] ^= 0xEE
    padded = message + bytes(-(len(message) + 1) % 8) + bytes([len(message) % 256])
    for at in range(0, len(padded), 8):
        block = int.from_bytes(padded[at : at + 8], "little")
        state[3] ^= block
        _rounds(state, 2)
        state[0] ^= block
    halves = []
    for word, mark in ((2, 0xEE), (1, 0xDD)):
        state[word] ^= mark
        _rounds(state, 4)
        halves.append(state[0] ^ state[1] ^ state[2] ^ state[3])
    return b"".join(half.to_bytes(8, "little") for half in halves)
