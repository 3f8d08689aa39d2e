/* What is signed in sends that follow each other in one read. Whether a signature is right is decided
 * in Python, which checks by itself whatever is not taken here. */
#include "send.h"

#define MOST_SENDS 64
#define MOST_FRAME_BYTES (16 * 1024 * 1024)

static int compare(Text left, Text right)
{
    size_t common = left.size < right.size ? left.size : right.size;
    int order = memcmp(left.start, right.start, common);
    return order ? order : (left.size > right.size) - (left.size < right.size);
}

/* Order the fields by their keys; 0 if two are equal. */
static int sort_fields(Fields *fields)
{
    for (int at = 1; at < fields->count; at++) {
        Text key = fields->keys[at], value = fields->values[at];
        int to = at, order = 1;
        while (to && (order = compare(fields->keys[to - 1], key)) > 0) {
            fields->keys[to] = fields->keys[to - 1];
            fields->values[to] = fields->values[to - 1];
            to--;
        }
        if (to && order == 0) {
            return 0;
        }
        fields->keys[to] = key;
        fields->values[to] = value;
    }
    return 1;
}

static int is_key(Text key, const char *expected)
{
    return compare(key, (Text){(const uint8_t *)expected, strlen(expected)}) == 0;
}

/* A tuple of what must be known of one send; NULL without an exception: it is not taken. */
static PyObject *signed_send(const Send *send, Fields *fields, const uint8_t *body, int64_t end,
                             int64_t body_bytes)
{
    Text access_key = {NULL, 0}, signature = {NULL, 0};
    size_t room = (size_t)body_bytes;
    if ((send->topic.size && *send->topic.start == '%') || !sort_fields(fields)) {
        return NULL;
    }
    for (int at = 0; at < fields->count; at++) {
        room += fields->values[at].size;
    }
    PyObject *content = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)room);
    if (content == NULL) {
        return NULL;
    }
    uint8_t *start = (uint8_t *)PyBytes_AS_STRING(content), *out = start;
    for (int at = 0; at < fields->count; at++) {
        if (is_key(fields->keys[at], "Signature")) {
            signature = fields->values[at];
            continue;
        }
        if (is_key(fields->keys[at], "AccessKey")) {
            access_key = fields->values[at];
        }
        int64_t written = copy_properties(fields->values[at], out);
        if (written < 0) {
            Py_DECREF(content);
            return NULL;
        }
        out += written;
    }
    if (access_key.start == NULL || signature.start == NULL) {
        Py_DECREF(content);
        return NULL;
    }
    memcpy(out, body, (size_t)body_bytes);
    out += body_bytes;
    if (_PyBytes_Resize(&content, (Py_ssize_t)(out - start)) < 0) {
        return NULL;
    }
    return Py_BuildValue("Ly#y#y#N", (long long)end, (const char *)access_key.start,
                         (Py_ssize_t)access_key.size, (const char *)signature.start,
                         (Py_ssize_t)signature.size, (const char *)send->topic.start,
                         (Py_ssize_t)send->topic.size, content);
}

static PyObject *signed_sends(PyObject *module, PyObject *arguments)
{
    PyObject *data;
    Py_ssize_t position;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "Sn:signed_sends", &data, &position)) {
        return NULL;
    }
    const uint8_t *start = (const uint8_t *)PyBytes_AS_STRING(data);
    int64_t at = position, size = PyBytes_GET_SIZE(data);
    if (at < 0 || at > size) {
        PyErr_SetString(PyExc_ValueError, "a position outside of the data");
        return NULL;
    }
    PyObject *found = PyList_New(0);
    while (found != NULL && size - at >= 8 && PyList_GET_SIZE(found) < MOST_SENDS) {
        int64_t length = (int32_t)read_u32(start + at);
        uint32_t mark = read_u32(start + at + 4);
        int64_t header = at + 8, body = header + mark, end = at + 4 + length;
        Send send;
        Fields fields = {.count = 0};
        if (mark > 0xffffff || length > MOST_FRAME_BYTES - 4 || body > end || end > size ||
            !read_send_header(start + header, start + body, &send, &fields)) {
            break;
        }
        PyObject *one = signed_send(&send, &fields, start + body, end, end - body);
        if (one == NULL || PyList_Append(found, one) < 0) {
            Py_XDECREF(one);
            if (PyErr_Occurred()) {
                Py_CLEAR(found);
            }
            break;
        }
        Py_DECREF(one);
        at = end;
    }
    return found;
}

PyMethodDef signed_methods[] = {
    {"signed_sends", signed_sends, METH_VARARGS, "See failback.broker.remoting.access.guard."},
    {NULL, NULL, 0, NULL},
};
