# What other compiled modules call: the two halves of a hash, of the first only the bits of the mask.
cdef (unsigned long long, unsigned long long) hash_key(
    const unsigned char *octets,
    Py_ssize_t at,
    Py_ssize_t length,
    unsigned long long a,
    unsigned long long b,
    unsigned long long c,
    unsigned long long d,
    unsigned long long mask,
) noexcept nogil
