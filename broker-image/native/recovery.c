#include "keys.h"

/* Twin of _good_records in failback/broker/store/upkeep/recovery.py: where whole records of a view end. */

enum { LONG_HOSTS = 0x30 };

/* Return the size of the good record at ``at``; 0 where there is none, or one with longer hosts. */
static Py_ssize_t good_record(const uint8_t *record, Py_ssize_t available, int64_t physical_offset,
                              int check_crc)
{
    if (available < FIXED_BYTES || read_u32(record + 4) != V1_MAGIC ||
        read_u32(record + 36) & LONG_HOSTS || (int64_t)read_u64(record + 28) != physical_offset) {
        return 0;
    }
    int64_t size = (int32_t)read_u32(record), body = (int32_t)read_u32(record + 84);
    if (size < FIXED_BYTES || size > available || body < 0 || body > size - FIXED_BYTES) {
        return 0;
    }
    const uint8_t *topic = record + HEAD_BYTES + body;
    int64_t properties = size - FIXED_BYTES - body - topic[0];
    if (properties < 0 || read_u16(topic + 1 + topic[0]) != properties) {
        return 0;
    }
    if (check_crc && (crc32_of(record + HEAD_BYTES, (size_t)body) & 0x7fffffffu) !=
                         read_u32(record + 8)) {
        return 0;
    }
    return (Py_ssize_t)size;
}

static PyObject *good_records(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer view;
    Py_ssize_t at, last;
    long long start;
    int check_crc;
    if (!PyArg_ParseTuple(arguments, "y*nLnp:good_records", &view, &at, &start, &last,
                          &check_crc)) {
        return NULL;
    }
    PyObject *result = NULL;
    if (at < 0 || at > view.len || start < 0 || start > INT64_MAX - (int64_t)view.len) {
        PyErr_SetString(PyExc_ValueError, "good_records begins outside of its view");
    } else {
        const uint8_t *data = view.buf;
        Py_ssize_t before = at, count = 0;
        while (at < last) {
            Py_ssize_t size = good_record(data + at, view.len - at, start + at, check_crc);
            if (!size) {
                break;
            }
            before = at;
            at += size;
            count++;
        }
        result = Py_BuildValue("nnn", at, count, before);
    }
    PyBuffer_Release(&view);
    return result;
}

PyMethodDef recovery_methods[] = {
    {"good_records", good_records, METH_VARARGS,
     "good_records(view, at, start, last, check_crc): where good records with IPv4 hosts that "
     "begin before ``last`` end, how many, where the last begins."},
    {NULL, NULL, 0, NULL},
};
