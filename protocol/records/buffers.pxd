# How compiled loops reach into buffers. What is interpreted has buffers.py instead.
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_IsContiguous, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromObject, PyMemoryView_GET_BUFFER

from libc.string cimport memcpy

cdef extern from *:
    void prefetch_line "__builtin_prefetch"(const void *address) noexcept nogil

cdef inline unsigned char *acquire(object buffer, Py_buffer *held) except? NULL:
    PyObject_GetBuffer(buffer, held, PyBUF_SIMPLE)
    return <unsigned char *>held.buf

cdef inline void release(Py_buffer *held):
    PyBuffer_Release(held)

cdef inline object view_of(object buffer):
    view = buffer if type(buffer) is memoryview else PyMemoryView_FromObject(buffer)
    if not PyBuffer_IsContiguous(PyMemoryView_GET_BUFFER(view), b"C"):
        raise BufferError("a buffer whose bytes do not lie one after another")
    return view

cdef inline Py_ssize_t size_of(object view):
    return PyMemoryView_GET_BUFFER(view).len

cdef inline unsigned char *octets_of(object view):
    return <unsigned char *>PyMemoryView_GET_BUFFER(view).buf

cdef inline long long *integers_of(object view):
    return <long long *>PyMemoryView_GET_BUFFER(view).buf

cdef inline unsigned long long *words_of(object view):
    return <unsigned long long *>PyMemoryView_GET_BUFFER(view).buf

cdef inline void prefetch(unsigned long long *words, Py_ssize_t at) noexcept nogil:
    prefetch_line(words + at)

cdef inline void copy(unsigned char *octets, Py_ssize_t at, bytes data) noexcept:
    memcpy(octets + at, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
