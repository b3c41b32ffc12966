# The C types of what layout.py makes, for the modules that read its fields as C does.

# What of CPython's C interface Cython does not declare: the function that a class is called by (PEP 590).
cdef extern from "Python.h":
    ctypedef object (*vectorcallfunc)(void *, void **, size_t, void *)
    ctypedef struct PyTypeObject:
        vectorcallfunc tp_vectorcall

cdef class Slot:
    cdef str name
    cdef object default
    cdef bint is_list
    cdef bint is_required
    cdef Py_ssize_t offset

cdef class FieldLayout(Slot):
    cdef object path
    cdef Py_UCS4 kind
    cdef bint compact
    cdef bint nullable
    cdef bint ignorable
    cdef readonly Py_ssize_t least_bytes
    cdef FieldLayout element
    cdef MessageLayout inner

cdef class MessageLayout:
    cdef readonly object message
    cdef readonly object version
    cdef tuple fields
    cdef tuple absent
    cdef bint is_flexible
    cdef tuple tagged
    cdef readonly Py_ssize_t least_bytes
