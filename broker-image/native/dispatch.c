#include "keys.h"

/* Twin of Dispatcher._enter_one_by_one in failback/broker/store/writing/dispatch.py, as far as that
 * needs no queue: records are taken from a view and sorted into groups, one for each queue, whose
 * queue offsets follow each other. */

enum {
    MOST_GROUPS = 256, /* of one call; so a slot of the table is always free */
    GROUP_SLOTS = 1024,
    ENTRY_BYTES = 20,
};

struct record {
    int64_t physical_offset, code;
    int32_t size, group;
};

struct group {
    struct span topic;
    int32_t queue_id;
    uint32_t topic_hash;
    int64_t first_offset, last_offset, first_end, end;
    Py_ssize_t count;
    PyObject *entries;
    uint8_t *next_entry;
};

struct scan {
    struct record *records;
    Py_ssize_t count, room;
    int64_t store_timestamp;
    int group_count;
    uint16_t slots[GROUP_SLOTS]; /* of groups, plus one; 0 where there is none */
    struct group groups[MOST_GROUPS];
    struct key_list keys;
};

static int same_span(struct span one, struct span other)
{
    return one.bytes == other.bytes && memcmp(one.at, other.at, (size_t)one.bytes) == 0;
}

static uint32_t hash_of_topic(struct span topic)
{
    uint32_t hash = 2166136261u;
    for (Py_ssize_t at = 0; at < topic.bytes; at++) {
        hash = (hash ^ topic.at[at]) * 16777619u;
    }
    return hash;
}

/* Return the group of a queue, a new one without a count, or NULL where none may be made. */
static struct group *find_group(struct scan *scan, struct group *before, struct span topic,
                                int32_t queue_id, struct span refused)
{
    int is_same_topic = before != NULL && same_span(before->topic, topic);
    if (is_same_topic && before->queue_id == queue_id) {
        return before;
    }
    uint32_t hash = is_same_topic ? before->topic_hash : hash_of_topic(topic);
    uint32_t at = hash + (uint32_t)queue_id * 2654435761u;
    at = (at ^ at >> 16) % GROUP_SLOTS;
    for (; scan->slots[at]; at = (at + 1) % GROUP_SLOTS) {
        struct group *group = &scan->groups[scan->slots[at] - 1];
        if (group->queue_id == queue_id && same_span(group->topic, topic)) {
            return group;
        }
    }
    if (scan->group_count == MOST_GROUPS || same_span(topic, refused)) {
        return NULL;
    }
    struct group *group = &scan->groups[scan->group_count++];
    scan->slots[at] = (uint16_t)scan->group_count;
    *group = (struct group){.topic = topic, .queue_id = queue_id, .topic_hash = hash};
    return group;
}

static int add_record(struct scan *scan, struct record record)
{
    if (scan->count == scan->room) {
        Py_ssize_t room = scan->room ? scan->room * 2 : 512;
        struct record *records = PyMem_Realloc(scan->records, (size_t)room * sizeof(*records));
        if (records == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        scan->records = records;
        scan->room = room;
    }
    scan->records[scan->count++] = record;
    return 0;
}

/* Take plain records that begin before ``last``; return where that ends, -1 with an exception. */
static Py_ssize_t take_records(struct scan *scan, const uint8_t *data, Py_ssize_t end,
                               Py_ssize_t at, int64_t start, Py_ssize_t last, struct span refused,
                               int keyed)
{
    struct group *group = NULL;
    while (at < last && end - at > HEAD_BYTES) {
        const uint8_t *record = data + at;
        int64_t size = (int32_t)read_u32(record), body = (int32_t)read_u32(record + 84);
        int64_t physical_offset = (int64_t)read_u64(record + 28);
        if (read_u32(record + 4) != V1_MAGIC || read_u32(record + 36) & RARE_FLAGS ||
            physical_offset != start + at || body < 0 || HEAD_BYTES + body >= size ||
            size > end - at) {
            break;
        }
        const uint8_t *rest = record + HEAD_BYTES + body;
        int64_t rest_bytes = size - HEAD_BYTES - body, topic_bytes = rest[0];
        if (topic_bytes + 3 > rest_bytes ||
            read_u16(rest + topic_bytes + 1) != rest_bytes - topic_bytes - 3) {
            break;
        }
        struct span topic = {rest + 1, topic_bytes};
        int64_t queue_offset = (int64_t)read_u64(record + 20);
        struct group *found =
            find_group(scan, group, topic, (int32_t)read_u32(record + 12), refused);
        if (found == NULL) {
            break;
        }
        group = found;
        if (group->count == 0) {
            group->first_offset = queue_offset;
            group->first_end = physical_offset + size;
        } else if (group->last_offset == INT64_MAX || queue_offset != group->last_offset + 1) {
            break;
        }
        struct properties of;
        find_properties((struct span){rest + topic_bytes + 3, rest_bytes - topic_bytes - 3}, &of);
        int64_t store_timestamp = (int64_t)read_u64(record + 56);
        uint32_t code = 0;
        if (java_hash(of.tags, &code) < 0 ||
            (keyed && add_record_keys(&scan->keys, &of, topic, physical_offset, store_timestamp)) ||
            add_record(scan, (struct record){physical_offset, (int32_t)code, (int32_t)size,
                                             (int32_t)(group - scan->groups)}) < 0) {
            return -1;
        }
        group->count++;
        group->last_offset = queue_offset;
        group->end = physical_offset + size;
        scan->store_timestamp = store_timestamp;
        at += size;
    }
    return at;
}

static int pack_entries(struct scan *scan)
{
    for (int at = 0; at < scan->group_count; at++) {
        struct group *group = &scan->groups[at];
        group->entries = PyBytes_FromStringAndSize(NULL, group->count * ENTRY_BYTES);
        if (group->entries == NULL) {
            return -1;
        }
        group->next_entry = (uint8_t *)PyBytes_AS_STRING(group->entries);
    }
    for (Py_ssize_t at = 0; at < scan->count; at++) {
        const struct record *record = &scan->records[at];
        uint8_t *entry = scan->groups[record->group].next_entry;
        write_u64(entry, (uint64_t)record->physical_offset);
        write_u32(entry + 8, (uint32_t)record->size);
        write_u64(entry + 12, (uint64_t)record->code);
        scan->groups[record->group].next_entry = entry + ENTRY_BYTES;
    }
    return 0;
}

static PyObject *result_of(struct scan *scan, Py_ssize_t at)
{
    if (at < 0 || pack_entries(scan) < 0) {
        return NULL;
    }
    PyObject *groups = PyList_New(scan->group_count);
    for (int number = 0; groups != NULL && number < scan->group_count; number++) {
        const struct group *group = &scan->groups[number];
        PyObject *item =
            Py_BuildValue("y#iLLLO", (const char *)group->topic.at, group->topic.bytes,
                          group->queue_id, (long long)group->first_offset,
                          (long long)group->first_end, (long long)group->end, group->entries);
        if (item == NULL) {
            Py_CLEAR(groups);
        } else {
            PyList_SET_ITEM(groups, number, item);
        }
    }
    PyObject *keys = groups == NULL ? NULL : packed_bytes(&scan->keys);
    if (keys == NULL) {
        Py_XDECREF(groups);
        return NULL;
    }
    return Py_BuildValue("nnLNN", at, scan->count, (long long)scan->store_timestamp, groups, keys);
}

static PyObject *scan_plain(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer view, refused;
    Py_ssize_t at, last;
    long long start;
    int keyed;
    if (!PyArg_ParseTuple(arguments, "y*nLny*p:scan_plain", &view, &at, &start, &last, &refused,
                          &keyed)) {
        return NULL;
    }
    PyObject *result = NULL;
    struct scan *scan = PyMem_Malloc(sizeof(*scan));
    if (scan == NULL) {
        PyErr_NoMemory();
    } else if (at < 0 || at > view.len || start < 0 || start > INT64_MAX - (int64_t)view.len) {
        PyErr_SetString(PyExc_ValueError, "scan_plain begins outside of its view");
    } else {
        scan->records = NULL;
        scan->count = scan->room = 0;
        scan->store_timestamp = 0;
        scan->group_count = 0;
        memset(scan->slots, 0, sizeof(scan->slots));
        scan->keys = (struct key_list)KEY_LIST;
        at = take_records(scan, view.buf, view.len, at, start, last,
                          (struct span){refused.buf, refused.len}, keyed);
        result = result_of(scan, at);
        for (int number = 0; number < scan->group_count; number++) {
            Py_XDECREF(scan->groups[number].entries);
        }
        PyMem_Free(scan->records);
        free_keys(&scan->keys);
    }
    PyMem_Free(scan);
    PyBuffer_Release(&refused);
    PyBuffer_Release(&view);
    return result;
}

PyMethodDef dispatch_methods[] = {
    {"scan_plain", scan_plain, METH_VARARGS,
     "scan_plain(view, at, start, last, refused, keyed): where plain records of topics other than "
     "``refused`` end, how many, the last store timestamp, by queue (topic, queue id, first queue "
     "offset, end of its first record, end of its last, entries), packed keys."},
    {NULL, NULL, 0, NULL},
};
