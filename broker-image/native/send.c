/* Single sends: all plain messages that follow each other in one read, from frames to records.
 *
 * Only what leaves no doubt is taken here. The first frame that is not as usual ends the run, and
 * Python decodes it, with the same result for whatever could have been taken. So every check in
 * here may refuse too much, and none may refuse too little. */
#include "send.h"
#include <stddef.h>

#define MAX_FRAME_BYTES (16 * 1024 * 1024)
#define RECORD_OVERHEAD_LIMIT 65536
#define HEAD_V4_BYTES 88
#define BORN_HOST_V6 0x10
#define STORE_HOST_V6 0x20
#define MOST_QUEUES 64
#define ANSWER_PIECES 5
#define ENTRY_BYTES 20

typedef struct {
    PyObject *object; /* bytes, of which ``used`` are */
    int64_t used;
} Buffer;

/* What is known of one queue that the run adds to; the objects are owned. */
typedef struct {
    Text topic;
    int32_t queue_id, sys_flag;
    int64_t next_offset, end_offset, bytes;
    PyObject *topic_piece, *timestamp, *entries, *codes;
} Queue;

typedef struct {
    PyObject *find, *born_host, *store_host, *cluster, *answer_pieces;
    int64_t physical_offset, room_end, max_body;
    int is_open;
    Buffer records, answers;
    PyObject *keyed, *waiting;
    Queue queues[MOST_QUEUES];
    int queue_count, last_queue;
} Run;

enum { FAILED = -1, REFUSED = 0, TAKEN = 1 };

static uint8_t *room(Buffer *buffer, int64_t wanted)
{
    int64_t size = PyBytes_GET_SIZE(buffer->object);
    if (size - buffer->used < wanted) {
        if (_PyBytes_Resize(&buffer->object, (Py_ssize_t)(size + size / 2 + wanted)) < 0) {
            return NULL;
        }
    }
    return (uint8_t *)PyBytes_AS_STRING(buffer->object) + buffer->used;
}

/* Ask Python for a queue that this run has not met; None from there refuses. */
static int find_queue(Run *run, const Send *send, Queue **found)
{
    Queue *queue = &run->queues[run->queue_count];
    long long next_offset;
    int sys_flag, outcome = FAILED;
    PyObject *piece, *timestamp;
    int queue_id = (int)send->numbers[QUEUE_ID];
    PyObject *place = PyObject_CallFunction(run->find, "s#i", (const char *)send->topic.start,
                                            (Py_ssize_t)send->topic.size, queue_id);
    if (place == NULL) {
        return FAILED;
    }
    if (place == Py_None) {
        outcome = REFUSED;
    } else if (!PyTuple_Check(place)) {
        PyErr_SetString(PyExc_TypeError, "a place is a tuple or None");
    } else if (PyArg_ParseTuple(place, "LSiO!", &next_offset, &piece, &sys_flag, &PyLong_Type,
                                &timestamp)) {
        *queue = (Queue){send->topic, queue_id, sys_flag, next_offset, 0, 0,
                         Py_NewRef(piece), Py_NewRef(timestamp), PyList_New(0), PyList_New(0)};
        run->last_queue = run->queue_count++;
        *found = queue;
        outcome = queue->entries != NULL && queue->codes != NULL ? TAKEN : FAILED;
    }
    Py_DECREF(place);
    return outcome;
}

static int queue_of(Run *run, const Send *send, Queue **found)
{
    for (int tried = 0, at = run->last_queue + 1; tried < run->queue_count; tried++, at++) {
        Queue *queue = &run->queues[at = at < run->queue_count ? at : 0];
        if (queue->queue_id == send->numbers[QUEUE_ID] && queue->topic.size == send->topic.size &&
            memcmp(queue->topic.start, send->topic.start, send->topic.size) == 0) {
            run->last_queue = at;
            *found = queue;
            return TAKEN;
        }
    }
    return run->queue_count < MOST_QUEUES ? find_queue(run, send, found) : REFUSED;
}

/* Append an object of which the reference is given away; NULL is a failure before. */
static int give(PyObject *list, PyObject *item)
{
    int outcome = item != NULL ? PyList_Append(list, item) : -1;
    Py_XDECREF(item);
    return outcome;
}

static uint8_t *put(uint8_t *out, PyObject *bytes)
{
    size_t size = (size_t)PyBytes_GET_SIZE(bytes);
    memcpy(out, PyBytes_AS_STRING(bytes), size);
    return out + size;
}

static uint8_t *put_decimal(uint8_t *out, int64_t value)
{
    char text[20];
    int at = sizeof text;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do {
        text[--at] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest);
    if (value < 0) {
        *out++ = '-';
    }
    memcpy(out, text + at, sizeof text - (size_t)at);
    return out + sizeof text - at;
}

/* The frame of SendAnswers.one with code 0. */
static int answer(Run *run, const Send *send, int64_t where, int64_t queue_offset)
{
    PyObject *pieces = run->answer_pieces;
    int64_t most = 8 + 16 + 11 + 20 + 11;
    for (int at = 0; at < ANSWER_PIECES; at++) {
        most += PyBytes_GET_SIZE(PyTuple_GET_ITEM(pieces, at));
    }
    uint8_t *start = room(&run->answers, most);
    if (start == NULL) {
        return FAILED;
    }
    uint8_t *out = put(start + 8, PyTuple_GET_ITEM(pieces, 0));
    for (int shift = 60; shift >= 0; shift -= 4) {
        *out++ = (uint8_t)"0123456789ABCDEF"[(uint64_t)where >> shift & 15];
    }
    out = put_decimal(put(out, PyTuple_GET_ITEM(pieces, 1)), send->numbers[QUEUE_ID]);
    out = put_decimal(put(out, PyTuple_GET_ITEM(pieces, 2)), queue_offset);
    out = put_decimal(put(out, PyTuple_GET_ITEM(pieces, 3)), send->opaque);
    out = put(out, PyTuple_GET_ITEM(pieces, 4));
    uint32_t size = (uint32_t)(out - start - 8);
    write_u32(start, size + 4);
    write_u32(start + 4, size);
    run->answers.used += out - start;
    return TAKEN;
}

/* With a closed gate answers go one by one: finished, or as what one is made of later. */
static int answer_singly(Run *run, const Send *send, int64_t where, const Queue *queue, int waits)
{
    if (waits) {
        PyObject *later = Py_BuildValue("iLiLL", send->opaque, (long long)where,
                                        (int)send->numbers[QUEUE_ID], (long long)queue->next_offset,
                                        (long long)run->physical_offset);
        return give(run->waiting, later) < 0 ? FAILED : TAKEN;
    }
    run->answers.used = 0;
    if (answer(run, send, where, queue->next_offset) == FAILED) {
        return FAILED;
    }
    PyObject *frame = PyBytes_FromStringAndSize(PyBytes_AS_STRING(run->answers.object),
                                                (Py_ssize_t)run->answers.used);
    return give(run->waiting, frame) < 0 ? FAILED : TAKEN;
}

static void write_head(uint8_t *out, const Run *run, const Send *send, const Queue *queue,
                       int64_t size, const uint8_t *body, int64_t body_bytes)
{
    int32_t sys_flag = (int32_t)send->numbers[SYS_FLAG] | queue->sys_flag;
    sys_flag &= ~(BORN_HOST_V6 | STORE_HOST_V6);
    sys_flag |= PyBytes_GET_SIZE(run->born_host) == 20 ? BORN_HOST_V6 : 0;
    sys_flag |= PyBytes_GET_SIZE(run->store_host) == 20 ? STORE_HOST_V6 : 0;
    write_u32(out, (uint32_t)size);
    write_u32(out + 4, V1_MAGIC);
    write_u32(out + 8, crc32_of(body, (size_t)body_bytes) & 0x7fffffff);
    write_u32(out + 12, (uint32_t)send->numbers[QUEUE_ID]);
    write_u32(out + 16, (uint32_t)send->numbers[FLAG]);
    write_u64(out + 20, (uint64_t)queue->next_offset);
    write_u64(out + 28, (uint64_t)run->physical_offset);
    write_u32(out + 36, (uint32_t)sys_flag);
    write_u64(out + 40, (uint64_t)send->numbers[BORN_TIMESTAMP]);
    out = put(out + 48, run->born_host);
    write_u64(out, (uint64_t)PyLong_AsLongLong(queue->timestamp));
    out = put(out + 8, run->store_host);
    write_u32(out, (uint32_t)send->numbers[RECONSUME_TIMES]);
    write_u64(out + 4, 0);
    write_u32(out + 12, (uint32_t)body_bytes);
}

/* Note a laid out record: its queue entry, its keys, its answer. */
static int note(Run *run, const Send *send, Queue *queue, int64_t size, const uint8_t *properties,
                const Properties *settled)
{
    int64_t where = run->physical_offset;
    uint8_t entry[ENTRY_BYTES];
    write_u64(entry, (uint64_t)where);
    write_u32(entry + 8, (uint32_t)size);
    write_u64(entry + 12, (uint64_t)(int64_t)settled->tags_code);
    if (give(queue->entries, PyBytes_FromStringAndSize((char *)entry, ENTRY_BYTES)) < 0 ||
        give(queue->codes, PyLong_FromLong(settled->tags_code)) < 0 ||
        give(run->keyed, Py_BuildValue("LOOy#", (long long)where, queue->timestamp,
                                       queue->topic_piece, (const char *)properties,
                                       (Py_ssize_t)settled->size)) < 0) {
        return FAILED;
    }
    run->physical_offset += size;
    queue->end_offset = run->physical_offset;
    queue->bytes += size;
    int outcome = TAKEN;
    if (!(send->flag & FLAG_ONEWAY)) {
        outcome = run->is_open ? answer(run, send, where, queue->next_offset)
                               : answer_singly(run, send, where, queue, settled->waits);
    }
    queue->next_offset++;
    return outcome;
}

/* Lay out the message of one frame; REFUSED leaves the run as it was. */
static int take(Run *run, const Send *send, const uint8_t *body, int64_t body_bytes)
{
    Queue *queue = NULL;
    Properties settled;
    int outcome = queue_of(run, send, &queue);
    if (outcome != TAKEN) {
        return outcome;
    }
    int64_t head = HEAD_V4_BYTES + PyBytes_GET_SIZE(run->born_host) - 8 +
                   PyBytes_GET_SIZE(run->store_host) - 8;
    int64_t before = head + body_bytes + PyBytes_GET_SIZE(queue->topic_piece) + 2;
    if (body_bytes > run->max_body) {
        return REFUSED;
    }
    uint8_t *out = room(&run->records, before + (int64_t)send->properties.size + 1 +
                                           PyBytes_GET_SIZE(run->cluster));
    if (out == NULL) {
        return FAILED;
    }
    uint8_t *properties = out + before;
    int64_t decoded = copy_properties(send->properties, properties);
    if (decoded < 0 || !settle_properties(properties, (size_t)decoded, run->cluster, &settled)) {
        return REFUSED;
    }
    int64_t size = before + (int64_t)settled.size;
    if (size > run->max_body + RECORD_OVERHEAD_LIMIT ||
        run->physical_offset + size > run->room_end) {
        return REFUSED;
    }
    write_head(out, run, send, queue, size, body, body_bytes);
    memcpy(out + head, body, (size_t)body_bytes);
    write_u16(put(out + head + body_bytes, queue->topic_piece), (uint16_t)settled.size);
    run->records.used += size;
    return note(run, send, queue, size, properties, &settled);
}

/* Take frames from ``at`` on as long as they are plain sends. Returns where the next one begins. */
static int64_t take_all(Run *run, const uint8_t *data, int64_t at, int64_t size)
{
    while (size - at >= 8) {
        int64_t length = (int32_t)read_u32(data + at);
        uint32_t mark = read_u32(data + at + 4);
        int64_t header = at + 8, body = header + mark, end = at + 4 + length;
        Send send;
        if (mark > 0xffffff || length > MAX_FRAME_BYTES - 4 || body > end || end > size ||
            !read_send_header(data + header, data + body, &send, NULL)) {
            break;
        }
        int outcome = take(run, &send, data + body, end - body);
        if (outcome == FAILED) {
            return FAILED;
        }
        if (outcome == REFUSED) {
            break;
        }
        at = end;
    }
    return at;
}

static int shrink(Buffer *buffer)
{
    return _PyBytes_Resize(&buffer->object, (Py_ssize_t)buffer->used);
}

static PyObject *result_of(Run *run, int64_t position)
{
    PyObject *queues = PyList_New(run->queue_count);
    if (queues == NULL || shrink(&run->records) < 0 ||
        (run->is_open && shrink(&run->answers) < 0)) {
        Py_XDECREF(queues);
        return NULL;
    }
    for (int at = 0; at < run->queue_count; at++) {
        Queue *queue = &run->queues[at];
        PyObject *added = Py_BuildValue("OOLL", queue->entries, queue->codes,
                                        (long long)queue->end_offset, (long long)queue->bytes);
        if (added == NULL) {
            Py_DECREF(queues);
            return NULL;
        }
        PyList_SET_ITEM(queues, at, added);
    }
    return Py_BuildValue("LOLNOO", (long long)position, run->records.object,
                         (long long)run->physical_offset, queues, run->keyed,
                         run->is_open ? run->answers.object : run->waiting);
}

static int is_host(PyObject *host)
{
    return PyBytes_GET_SIZE(host) == 8 || PyBytes_GET_SIZE(host) == 20;
}

static int are_terms_good(const Run *run)
{
    int good = PyTuple_GET_SIZE(run->answer_pieces) == ANSWER_PIECES;
    for (int at = 0; good && at < ANSWER_PIECES; at++) {
        good = PyBytes_Check(PyTuple_GET_ITEM(run->answer_pieces, at));
    }
    if (!good) {
        PyErr_SetString(PyExc_TypeError, "the answer has five pieces of bytes");
    }
    return good;
}

static PyObject *take_sends(PyObject *module, PyObject *arguments)
{
    PyObject *data, *result = NULL;
    Py_ssize_t position;
    long long physical_offset, room_end, max_body;
    Run run;
    (void)module;
    memset(&run, 0, offsetof(Run, queues));
    run.queue_count = 0;
    run.last_queue = -1;
    if (!PyArg_ParseTuple(arguments, "SnOLLLSSSO!p:take_sends", &data, &position, &run.find,
                          &physical_offset, &room_end, &max_body, &run.store_host, &run.born_host,
                          &run.cluster, &PyTuple_Type, &run.answer_pieces, &run.is_open) ||
        !are_terms_good(&run)) {
        return NULL;
    }
    Py_ssize_t size = PyBytes_GET_SIZE(data);
    if (position < 0 || position > size || physical_offset < 0 || room_end < 0 || max_body < 0) {
        PyErr_SetString(PyExc_ValueError, "a negative offset, or a position behind the data");
        return NULL;
    }
    if (!is_host(run.born_host) || !is_host(run.store_host)) {
        Py_RETURN_NONE;
    }
    run.physical_offset = physical_offset;
    run.room_end = room_end;
    run.max_body = max_body;
    run.records.object = PyBytes_FromStringAndSize(NULL, size - position);
    run.answers.object = PyBytes_FromStringAndSize(NULL, 512);
    run.keyed = PyList_New(0);
    run.waiting = PyList_New(0);
    if (run.records.object && run.answers.object && run.keyed && run.waiting) {
        int64_t end = take_all(&run, (const uint8_t *)PyBytes_AS_STRING(data), position, size);
        if (end == position) {
            result = Py_NewRef(Py_None);
        } else if (end != FAILED) {
            result = result_of(&run, end);
        }
    }
    for (int at = 0; at < run.queue_count; at++) {
        Queue *queue = &run.queues[at];
        Py_DECREF(queue->topic_piece);
        Py_DECREF(queue->timestamp);
        Py_XDECREF(queue->entries);
        Py_XDECREF(queue->codes);
    }
    Py_XDECREF(run.records.object);
    Py_XDECREF(run.answers.object);
    Py_XDECREF(run.keyed);
    Py_XDECREF(run.waiting);
    return result;
}

PyMethodDef send_methods[] = {
    {"take_sends", take_sends, METH_VARARGS, "See failback.broker.processors.sending.plain_sends."},
    {NULL, NULL, 0, NULL},
};
