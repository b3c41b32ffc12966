"""Requests that are like an earlier one: served without decoding what has not changed.

To one partition a client sends the same request again and again, but for its correlation id and its records, its offset
or its time. What stands before those is compared, to the byte, with a request that was decoded before; what comes of it
is answered with bytes that were encoded before, but for their numbers. Invariant: the answer is the one that the long
way gives. What is not the same, names more than one partition, has to wait or fails goes that way.
"""
