/* The signatures of sends that follow each other in one read. What an account may do is decided in
 * Python, which also checks by itself whatever is not taken here. */
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

typedef struct {
    Text access_key, topic;
    const char *states; /* of the account's HMAC; NULL: nothing is taken yet */
    long long end;
} Run;

/* Write what is signed to ``out``, and set key and signature; its size, -1: it is not taken. */
static int64_t write_content(Fields *fields, const uint8_t *body, int64_t body_bytes, uint8_t *out,
                             Text *access_key, Text *signature)
{
    const uint8_t *start = out;
    for (int at = 0; at < fields->count; at++) {
        if (is_key(fields->keys[at], "Signature")) {
            *signature = fields->values[at];
            continue;
        }
        if (is_key(fields->keys[at], "AccessKey")) {
            *access_key = fields->values[at];
        }
        int64_t written = copy_properties(fields->values[at], out);
        if (written < 0) {
            return -1;
        }
        out += written;
    }
    memcpy(out, body, (size_t)body_bytes);
    return access_key->start && signature->start ? out + body_bytes - start : -1;
}

/* Let a state that has taken one block take the last bytes; there is room for ROOM more of them. */
enum { ROOM = 72 };
static void finish(uint32_t state[5], uint8_t *text, size_t size)
{
    size_t blocks = (size + ROOM) / 64;
    memset(text + size, 0, blocks * 64 - size);
    text[size] = 0x80;
    write_u64(text + blocks * 64 - 8, (64 + size) * 8);
    sha1_blocks(state, text, blocks);
}

/* Whether a text is the HMAC of a content, in a time that does not depend on where it differs. */
static int is_signature(const char *states, uint8_t *content, size_t size, Text text)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t inner[5], outer[5];
    uint8_t block[20 + ROOM], digest[22] = {0}, differs = 0;
    memcpy(inner, states, 20);
    memcpy(outer, states + 20, 20);
    finish(inner, content, size);
    for (int at = 0; at < 5; at++) {
        write_u32(block + 4 * at, inner[at]);
    }
    finish(outer, block, 20);
    for (int at = 0; at < 5; at++) {
        write_u32(digest + 4 * at, outer[at]);
    }
    for (size_t at = 0; text.size == 28 && at < 28; at++) {
        const uint8_t *from = digest + at * 6 / 8;
        int bits = (from[0] << 8 | from[1]) >> (10 - at * 6 % 8) & 63;
        differs |= text.start[at] ^ (uint8_t)(at == 27 ? '=' : letters[bits]);
    }
    return text.size == 28 && !differs;
}

/* The states of an account; NULL without an exception: there is no such account. */
static const char *states_of(PyObject *accounts, Text access_key)
{
    PyObject *key =
        PyBytes_FromStringAndSize((const char *)access_key.start, (Py_ssize_t)access_key.size);
    PyObject *states = key == NULL ? NULL : PyDict_GetItemWithError(accounts, key);
    Py_XDECREF(key);
    return states == NULL ? NULL : PyBytes_AS_STRING(states);
}

static int add_run(PyObject *found, const Run *run)
{
    PyObject *one = Py_BuildValue("Ly#y#", run->end, (const char *)run->access_key.start,
                                  (Py_ssize_t)run->access_key.size, (const char *)run->topic.start,
                                  (Py_ssize_t)run->topic.size);
    int failed = one == NULL ? -1 : PyList_Append(found, one);
    Py_XDECREF(one);
    return failed;
}

/* Take one send into the run, or into a next one; 0: it is not signed as it must be, or not plain. */
static int take_signed(PyObject *found, PyObject *accounts, Run *run, const Send *send,
                       Fields *fields, const uint8_t *body, int64_t body_bytes)
{
    Text access_key = {NULL, 0}, signature = {NULL, 0};
    size_t room = (size_t)body_bytes + ROOM;
    if ((send->topic.size && *send->topic.start == '%') || !sort_fields(fields)) {
        return 0;
    }
    for (int at = 0; at < fields->count; at++) {
        room += fields->values[at].size;
    }
    uint8_t *content = PyMem_Malloc(room);
    if (content == NULL) {
        return 0;
    }
    int64_t size = write_content(fields, body, body_bytes, content, &access_key, &signature);
    int is_same = run->states != NULL && !compare(run->access_key, access_key);
    const char *states = size < 0 ? NULL : is_same ? run->states : states_of(accounts, access_key);
    int is_right = states != NULL && is_signature(states, content, (size_t)size, signature);
    PyMem_Free(content);
    if (is_right && (!is_same || compare(run->topic, send->topic))) {
        is_right = run->states == NULL || add_run(found, run) == 0;
        *run = (Run){access_key, send->topic, states, 0};
    }
    return is_right;
}

/* Where each run of sends ends that has one key and one topic, its key and its topic. */
static PyObject *verified_sends(PyObject *module, PyObject *arguments)
{
    PyObject *data, *accounts;
    Py_ssize_t position;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "SnO!:verified_sends", &data, &position, &PyDict_Type,
                          &accounts)) {
        return NULL;
    }
    const uint8_t *start = (const uint8_t *)PyBytes_AS_STRING(data);
    int64_t at = position, size = PyBytes_GET_SIZE(data);
    if (at < 0 || at > size) {
        PyErr_SetString(PyExc_ValueError, "a position outside of the data");
        return NULL;
    }
    PyObject *found = PyList_New(0);
    Run run = {.states = NULL};
    for (int taken = 0; found != NULL && size - at >= 8 && taken < MOST_SENDS; taken++) {
        int64_t length = (int32_t)read_u32(start + at);
        uint32_t mark = read_u32(start + at + 4);
        int64_t header = at + 8, body = header + mark, end = at + 4 + length;
        Send send;
        Fields fields = {.count = 0};
        if (mark > 0xffffff || length > MOST_FRAME_BYTES - 4 || body > end || end > size ||
            !read_send_header(start + header, start + body, &send, &fields) ||
            !take_signed(found, accounts, &run, &send, &fields, start + body, end - body)) {
            break;
        }
        run.end = at = end;
    }
    if (found != NULL && (PyErr_Occurred() || (run.states != NULL && add_run(found, &run) < 0))) {
        Py_CLEAR(found);
    }
    return found;
}

/* The states, inner and outer, of an HMAC-SHA1 that has taken its key, a block of 64 bytes. */
static PyObject *hmac_states(PyObject *module, PyObject *key)
{
    uint32_t states[2][5];
    (void)module;
    if (!PyBytes_Check(key) || PyBytes_GET_SIZE(key) != 64) {
        PyErr_SetString(PyExc_ValueError, "a key is a block of 64 bytes");
        return NULL;
    }
    for (int which = 0; which < 2; which++) {
        static const uint32_t first[] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
        uint8_t block[64];
        for (int at = 0; at < 64; at++) {
            block[at] = (uint8_t)PyBytes_AS_STRING(key)[at] ^ (which ? 0x5c : 0x36);
        }
        memcpy(states[which], first, 20);
        sha1_blocks(states[which], block, 1);
    }
    return PyBytes_FromStringAndSize((const char *)states, sizeof states);
}

PyMethodDef signed_methods[] = {
    {"hmac_states", hmac_states, METH_O, "See failback.broker.remoting.access."},
    {"verified_sends", verified_sends, METH_VARARGS, "See failback.broker.remoting.access."},
    {NULL, NULL, 0, NULL},
};
