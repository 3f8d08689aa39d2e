/* What a pull gets of a queue: one walk over its entries, in place.
 *
 *     entry:  physical offset i64 | record size i32 | tags code i64
 *
 * The twin is _Scan.walk of failback/broker/store/reading/reading.py, which says what the numbers mean. What
 * a queue of ours never holds, a number below 0, is left to the twin. */
#include "kernels.h"

#define ENTRY_BYTES 20
#define NO_MATCHED_MESSAGE 1 /* of GetStatus */
#define MESSAGE_WAS_REMOVING 2

typedef struct {
    long long count, bytes;
} Limit;

typedef struct {
    long long log_start, log_tail, file_bytes, in_memory_from;
    Limit in_memory, on_disk;
    PyObject *tags; /* None: all of them */
} Wanted;

typedef struct {
    int status;
    long long examined, count, total, last_examined;
    PyObject *spans;
} Walked;

/* Whether the tags pass; -1 with an exception set. */
static int passes(const Wanted *wanted, const uint8_t *entry)
{
    if (wanted->tags == Py_None) {
        return 1;
    }
    PyObject *code = PyLong_FromLong((int32_t)read_u32(entry + 16)); /* Java's intValue */
    int found = code != NULL ? PySet_Contains(wanted->tags, code) : -1;
    Py_XDECREF(code);
    return found;
}

/* Add a span unless it is empty; false with an exception set. */
static int add_span(PyObject *spans, long long start, long long end)
{
    if (end <= start) {
        return 1;
    }
    PyObject *span = Py_BuildValue("LL", start, end);
    int added = span != NULL && PyList_Append(spans, span) == 0;
    Py_XDECREF(span);
    return added;
}

/* Return 1, 0 if the twin has to do it, -1 with an exception set. */
static int walk(const Wanted *wanted, const uint8_t *at, const uint8_t *entries_end, Walked *walked)
{
    long long run_start = 0, run_end = 0, run_limit = 0, skip_below = -1;
    for (; at < entries_end; at += ENTRY_BYTES) {
        int64_t place = (int64_t)read_u64(at);
        int32_t size = (int32_t)read_u32(at + 8);
        if (place < 0 || size < 0 || place > INT64_MAX - size
            || place > INT64_MAX - wanted->file_bytes) {
            return 0;
        }
        walked->last_examined = place;
        if (place < skip_below) {
            walked->examined++;
            continue;
        }
        if (walked->count) {
            const Limit *limit =
                place < wanted->in_memory_from ? &wanted->on_disk : &wanted->in_memory;
            if (walked->count >= limit->count || walked->total + size > limit->bytes) {
                break;
            }
        }
        walked->examined++;
        int passed = passes(wanted, at);
        if (passed < 0) {
            return -1;
        }
        if (!passed) {
            walked->status = NO_MATCHED_MESSAGE;
            continue;
        }
        long long end = place + size;
        if (place != run_end || end > run_limit) {
            long long file_end = place - place % wanted->file_bytes + wanted->file_bytes;
            long long limit = file_end < wanted->log_tail ? file_end : wanted->log_tail;
            if (place < wanted->log_start || end > limit) {
                skip_below = file_end;
                walked->status = MESSAGE_WAS_REMOVING;
                continue;
            }
            if (!add_span(walked->spans, run_start, run_end)) {
                return -1;
            }
            run_start = place;
            run_limit = limit;
        }
        run_end = end;
        walked->count++;
        walked->total += size;
        skip_below = -1;
    }
    return add_span(walked->spans, run_start, run_end) ? 1 : -1;
}

static PyObject *walk_entries(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer entries;
    Wanted wanted;
    if (!PyArg_ParseTuple(arguments, "y*OLLLL(LL)(LL):walk_entries", &entries, &wanted.tags,
                          &wanted.log_start, &wanted.log_tail, &wanted.file_bytes,
                          &wanted.in_memory_from, &wanted.in_memory.count, &wanted.in_memory.bytes,
                          &wanted.on_disk.count, &wanted.on_disk.bytes)) {
        return NULL;
    }
    Walked walked = {NO_MATCHED_MESSAGE, 0, 0, 0, -1, NULL};
    PyObject *result = NULL;
    if (entries.len % ENTRY_BYTES || wanted.file_bytes <= 0
        || !(wanted.tags == Py_None || PyFrozenSet_Check(wanted.tags))) {
        PyErr_SetString(PyExc_ValueError, "walk_entries takes whole entries and a set of tags");
    } else if ((walked.spans = PyList_New(0)) != NULL) {
        const uint8_t *at = entries.buf;
        int done = walk(&wanted, at, at + entries.len, &walked);
        if (done > 0) {
            result = Py_BuildValue("iLLLLO", walked.status, walked.examined, walked.count,
                                   walked.total, walked.last_examined, walked.spans);
        } else if (done == 0) {
            result = Py_NewRef(Py_None);
        }
    }
    Py_XDECREF(walked.spans);
    PyBuffer_Release(&entries);
    return result;
}

PyMethodDef reading_methods[] = {
    {"walk_entries", walk_entries, METH_VARARGS,
     "walk_entries(entries, tags, log_start, log_tail, file_bytes, in_memory_from, memory_limits,\n"
     "disk_limits): the status without messages, entries examined, messages, their bytes, the last\n"
     "place looked at, spans of the log; None if an entry has a number below 0."},
    {NULL, NULL, 0, NULL},
};
