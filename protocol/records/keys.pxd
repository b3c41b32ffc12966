# What `tally` calls too: where the words of a hash's entry begin, or of the free one that it would get.
cdef Py_ssize_t find(
    unsigned long long *entries,
    Py_ssize_t width,
    unsigned long long capacity,
    unsigned long long first,
    unsigned long long second,
) noexcept nogil
