# What of CPython's C interface Cython does not declare: the function that a class is called by (PEP 590).
cdef extern from "Python.h":
    ctypedef object (*vectorcallfunc)(void *, void **, size_t, void *)
    ctypedef struct PyTypeObject:
        vectorcallfunc tp_vectorcall
