/* Batches: what a producer packed into one body becomes records, side by side.
 *
 * Two passes over the body. The first says how much room the records take, or that a batch isn't
 * plain: Python does that one, and words the refusal if there is one. The second lays the records
 * out where the log then has room. It checks every length again, so neither trusts its caller.
 *
 *     element:  size i32 | magic i32 | crc i32 | flag i32 | body length i32, body
 *               | length u16, properties
 *
 * The twins are decode_batch of failback/protocol/message.py and append_batch of
 * failback/broker/store/writing/appending.py; a record's layout is drawn in the former. */
#include "kernels.h"

#define ELEMENT_HEAD_BYTES 20
#define ENTRY_BYTES 20
#define MOST_PROPERTY_BYTES 32767
#define PROPERTY_END 2
#define MOST_BODY_BYTES (1 << 30) /* of a batch; so that whatever is added here fits 64 bits */
#define MOST_PREFIX_BYTES 64

typedef struct {
    const uint8_t *at;
    size_t length;
} Span;

typedef struct {
    uint32_t flag;
    Span body, properties;
    size_t end;
} Element;

/* Read the element at `at`, which is at most the end; false if the lengths contradict. */
static int read_element(Span data, size_t at, Element *found)
{
    size_t rest = data.length - at;
    const uint8_t *head = data.at + at;
    if (rest < ELEMENT_HEAD_BYTES) {
        return 0;
    }
    int64_t size = (int32_t)read_u32(head), body_bytes = (int32_t)read_u32(head + 16);
    int64_t least = ELEMENT_HEAD_BYTES + body_bytes + 2;
    if (body_bytes < 0 || size < least || size > (int64_t)rest) {
        return 0;
    }
    found->flag = read_u32(head + 12);
    found->body = (Span){head + ELEMENT_HEAD_BYTES, (size_t)body_bytes};
    found->properties = (Span){head + least, read_u16(head + least - 2)};
    found->end = at + (size_t)size;
    return size == least + (int64_t)found->properties.length;
}

/* Whether a separator goes between an element's properties and those of the batch. */
static int needs_separator(Span own, Span batch)
{
    return own.length && batch.length && own.at[own.length - 1] != PROPERTY_END;
}

static size_t joined_bytes(Span own, Span batch)
{
    return own.length + (size_t)needs_separator(own, batch) + batch.length;
}

static PyObject *measure_batch(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    Py_buffer data, batch;
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "measure_batch(data, batch_properties, most_body_bytes)");
        return NULL;
    }
    long long most = PyLong_AsLongLong(arguments[2]);
    if (most == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (PyObject_GetBuffer(arguments[0], &data, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    if (PyObject_GetBuffer(arguments[1], &batch, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&data);
        return NULL;
    }
    Span body = {data.buf, (size_t)data.len}, shared = {batch.buf, (size_t)batch.len};
    long long elements = 0, body_bytes = 0, property_bytes = 0;
    int is_plain = body.length > 0 && body.length <= MOST_BODY_BYTES;
    for (size_t at = 0; is_plain && at < body.length; elements++) {
        Element element;
        is_plain = read_element(body, at, &element);
        if (is_plain) {
            size_t joined = joined_bytes(element.properties, shared);
            body_bytes += (long long)element.body.length;
            property_bytes += (long long)joined;
            is_plain = joined <= MOST_PROPERTY_BYTES;
            at = element.end;
        }
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&batch);
    if (!is_plain || body_bytes > most) {
        Py_RETURN_NONE;
    }
    return Py_BuildValue("LL", elements, body_bytes + property_bytes);
}

/* --- tags codes ------------------------------------------------------------------------------ */

/* The value of the last TAGS that has one; a length of 0 if none has. */
static Span tags_of(Span properties)
{
    static const uint8_t name[5] = {'T', 'A', 'G', 'S', 1};
    Span found = {properties.at, 0};
    const uint8_t *end = properties.at + properties.length;
    for (const uint8_t *at = properties.at; at < end;) {
        const uint8_t *stop = memchr(at, PROPERTY_END, (size_t)(end - at));
        stop = stop != NULL ? stop : end;
        size_t length = (size_t)(stop - at);
        if (length > sizeof name && memcmp(at, name, sizeof name) == 0) {
            found = (Span){at + sizeof name, length - sizeof name};
        }
        at = stop < end ? stop + 1 : end;
    }
    return found;
}

/* String.hashCode of UTF-8 as Python decodes it with "replace"; false with an exception set. */
static int hash_text(Span text, uint32_t *hash)
{
    PyObject *decoded = PyUnicode_DecodeUTF8((const char *)text.at, (Py_ssize_t)text.length,
                                             "replace");
    if (decoded == NULL) {
        return 0;
    }
    uint32_t state = 0;
    for (Py_ssize_t at = 0; at < PyUnicode_GET_LENGTH(decoded); at++) {
        Py_UCS4 unit = PyUnicode_READ_CHAR(decoded, at);
        if (unit > 0xffff) {
            state = 31 * state + (0xd800 + ((unit - 0x10000) >> 10));
            unit = 0xdc00 + (unit & 0x3ff);
        }
        state = 31 * state + unit;
    }
    Py_DECREF(decoded);
    *hash = state;
    return 1;
}

/* What a queue entry has of these tags: the hash with its sign, 0 without tags. */
static int tags_code(Span tags, int64_t *code)
{
    uint32_t state = 0;
    for (size_t at = 0; at < tags.length; at++) {
        if (tags.at[at] > 0x7f) {
            if (!hash_text(tags, &state)) {
                return 0;
            }
            break;
        }
        state = 31 * state + tags.at[at];
    }
    *code = (int32_t)state;
    return 1;
}

/* --- laying out ------------------------------------------------------------------------------ */

/* What all records of a batch share, and where the next one goes. */
typedef struct {
    Span head, topic, batch, batch_tags;
    int64_t queue_offset, physical_offset;
    PyObject *store_timestamp, *topic_piece;
    uint8_t *to, *to_end;
} Layout;

typedef struct {
    PyObject *entries, *codes, *keyed, *places;
} Lists;

/* Write the record to where there is room for `size` bytes; return its properties there. */
static Span write_record(const Layout *layout, const Element *element, size_t size)
{
    uint8_t *to = layout->to;
    Span own = element->properties, batch = layout->batch;
    memcpy(to, layout->head.at, layout->head.length);
    write_u32(to, (uint32_t)size);
    write_u32(to + 8, crc32_of(element->body.at, element->body.length) & 0x7fffffff);
    write_u32(to + 16, element->flag);
    write_u64(to + 20, (uint64_t)layout->queue_offset);
    write_u64(to + 28, (uint64_t)layout->physical_offset);
    to += layout->head.length;
    write_u32(to - 4, (uint32_t)element->body.length);
    memcpy(to, element->body.at, element->body.length);
    to += element->body.length;
    memcpy(to, layout->topic.at, layout->topic.length);
    to += layout->topic.length;
    Span joined = {to + 2, joined_bytes(own, batch)};
    write_u16(to, (uint16_t)joined.length);
    to += 2;
    memcpy(to, own.at, own.length);
    to += own.length;
    if (needs_separator(own, batch)) {
        *to++ = PROPERTY_END;
    }
    if (batch.length) {
        memcpy(to, batch.at, batch.length);
    }
    return joined;
}

/* Put the entry, the tags code, the parts with keys and the place of record `at` into the lists.
 *
 * False with an exception set; what was put there until then belongs to the lists. */
static int note_record(const Layout *layout, Lists *lists, Py_ssize_t at, Span properties,
                       size_t size, int64_t code)
{
    uint8_t entry[ENTRY_BYTES];
    write_u64(entry, (uint64_t)layout->physical_offset);
    write_u32(entry + 8, (uint32_t)size);
    write_u64(entry + 12, (uint64_t)code);
    PyObject *packed = PyBytes_FromStringAndSize((const char *)entry, ENTRY_BYTES);
    PyObject *number = PyLong_FromLongLong(code);
    PyObject *place = PyLong_FromLongLong(layout->physical_offset);
    PyObject *text = PyBytes_FromStringAndSize((const char *)properties.at,
                                               (Py_ssize_t)properties.length);
    PyObject *parts = PyTuple_New(4);
    if (packed == NULL || number == NULL || place == NULL || text == NULL || parts == NULL) {
        Py_XDECREF(packed);
        Py_XDECREF(number);
        Py_XDECREF(place);
        Py_XDECREF(text);
        Py_XDECREF(parts);
        return 0;
    }
    Py_INCREF(place);
    Py_INCREF(layout->store_timestamp);
    Py_INCREF(layout->topic_piece);
    PyTuple_SET_ITEM(parts, 0, place);
    PyTuple_SET_ITEM(parts, 1, layout->store_timestamp);
    PyTuple_SET_ITEM(parts, 2, layout->topic_piece);
    PyTuple_SET_ITEM(parts, 3, text);
    PyList_SET_ITEM(lists->entries, at, packed);
    PyList_SET_ITEM(lists->codes, at, number);
    PyList_SET_ITEM(lists->keyed, at, parts);
    PyList_SET_ITEM(lists->places, at, place);
    return 1;
}

static int not_as_measured(void)
{
    PyErr_SetString(PyExc_ValueError, "this is not the batch that was measured");
    return 0;
}

/* Lay out all of `data`, `count` elements; false with an exception set. */
static int lay_out_all(Layout *layout, Lists *lists, Span data, Py_ssize_t count)
{
    int64_t batch_code;
    if (!tags_code(layout->batch_tags, &batch_code)) {
        return 0;
    }
    size_t fixed = layout->head.length + layout->topic.length + 2, at = 0;
    for (Py_ssize_t number = 0; number < count; number++) {
        Element element;
        if (!read_element(data, at, &element)) {
            return not_as_measured();
        }
        size_t joined = joined_bytes(element.properties, layout->batch);
        size_t size = fixed + element.body.length + joined;
        if (joined > MOST_PROPERTY_BYTES || size > (size_t)(layout->to_end - layout->to)) {
            return not_as_measured();
        }
        int64_t code = batch_code; /* the last TAGS counts, and those of the batch come last */
        if (layout->batch_tags.length == 0 && !tags_code(tags_of(element.properties), &code)) {
            return 0;
        }
        Span properties = write_record(layout, &element, size);
        if (!note_record(layout, lists, number, properties, size, code)) {
            return 0;
        }
        layout->to += size;
        layout->queue_offset++;
        layout->physical_offset += (int64_t)size;
        at = element.end;
    }
    return at == data.length && layout->to == layout->to_end ? 1 : not_as_measured();
}

static PyObject *lay_out_batch(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer data, batch, head;
    Py_ssize_t count, total;
    long long queue_offset, physical_offset;
    PyObject *topic_piece, *timestamp, *records = NULL, *result = NULL;
    if (!PyArg_ParseTuple(arguments, "y*y*y*SO!nnLL", &data, &batch, &head, &topic_piece,
                          &PyLong_Type, &timestamp, &count, &total, &queue_offset,
                          &physical_offset)) {
        return NULL;
    }
    Lists lists = {NULL, NULL, NULL, NULL};
    Layout layout = {
        .head = {head.buf, (size_t)head.len},
        .topic = {(const uint8_t *)PyBytes_AS_STRING(topic_piece),
                  (size_t)PyBytes_GET_SIZE(topic_piece)},
        .batch = {batch.buf, (size_t)batch.len},
        .queue_offset = queue_offset,
        .physical_offset = physical_offset,
        .store_timestamp = timestamp,
        .topic_piece = topic_piece,
    };
    Span body = {data.buf, (size_t)data.len};
    int has_head = head.len == 88 || head.len == 100 || head.len == 112;
    if (!has_head || layout.topic.length > 128 || body.length > MOST_BODY_BYTES || count < 0
        || count > (Py_ssize_t)(body.length / ELEMENT_HEAD_BYTES) || total < 0
        || layout.batch.length > MOST_PROPERTY_BYTES || queue_offset < 0
        || queue_offset > INT64_MAX - count || physical_offset < 0
        || physical_offset > INT64_MAX - total) {
        not_as_measured();
        goto done;
    }
    layout.batch_tags = tags_of(layout.batch);
    records = PyBytes_FromStringAndSize(NULL, total);
    lists = (Lists){PyList_New(count), PyList_New(count), PyList_New(count), PyList_New(count)};
    if (records == NULL || lists.entries == NULL || lists.codes == NULL || lists.keyed == NULL
        || lists.places == NULL) {
        goto done;
    }
    layout.to = (uint8_t *)PyBytes_AS_STRING(records);
    layout.to_end = layout.to + total;
    if (lay_out_all(&layout, &lists, body, count)) {
        result = PyTuple_Pack(5, records, lists.entries, lists.codes, lists.keyed, lists.places);
    }
done:
    Py_XDECREF(records);
    Py_XDECREF(lists.entries);
    Py_XDECREF(lists.codes);
    Py_XDECREF(lists.keyed);
    Py_XDECREF(lists.places);
    PyBuffer_Release(&data);
    PyBuffer_Release(&batch);
    PyBuffer_Release(&head);
    return result;
}

/* --- ids ------------------------------------------------------------------------------------- */

static PyObject *message_ids(PyObject *module, PyObject *arguments)
{
    (void)module;
    PyObject *prefix, *places;
    if (!PyArg_ParseTuple(arguments, "SO!", &prefix, &PyList_Type, &places)) {
        return NULL;
    }
    Py_ssize_t count = PyList_GET_SIZE(places), prefix_bytes = PyBytes_GET_SIZE(prefix);
    Py_ssize_t each = prefix_bytes + 16 + 1;
    if (prefix_bytes > MOST_PREFIX_BYTES || count > PY_SSIZE_T_MAX / (MOST_PREFIX_BYTES + 17)) {
        PyErr_SetString(PyExc_ValueError, "ids too long, or too many of them");
        return NULL;
    }
    PyObject *ids = PyBytes_FromStringAndSize(NULL, count ? count * each - 1 : 0);
    char *to = ids != NULL ? PyBytes_AS_STRING(ids) : NULL;
    for (Py_ssize_t at = 0; ids != NULL && at < count; at++) {
        long long place = PyLong_AsLongLong(PyList_GET_ITEM(places, at));
        if (place < 0) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_ValueError, "no record lies below 0");
            }
            Py_CLEAR(ids);
            break;
        }
        if (at > 0) {
            *to++ = ',';
        }
        memcpy(to, PyBytes_AS_STRING(prefix), (size_t)prefix_bytes);
        to += prefix_bytes;
        for (int bits = 60; bits >= 0; bits -= 4) {
            *to++ = "0123456789ABCDEF"[place >> bits & 15];
        }
    }
    return ids;
}

PyMethodDef batch_methods[] = {
    {"measure_batch", (PyCFunction)(void (*)(void))measure_batch, METH_FASTCALL,
     "measure_batch(data, batch_properties, most_body_bytes): how many elements, and the bytes of\n"
     "their bodies and joined properties; None if this is no batch within the limits."},
    {"lay_out_batch", lay_out_batch, METH_VARARGS,
     "lay_out_batch(data, batch_properties, head, topic_piece, store_timestamp, count, total,\n"
     "queue_offset, physical_offset): the records as one bytes object, their queue entries, tags\n"
     "codes, parts for the index, and places. `head` is the fixed part with what they share."},
    {"message_ids", message_ids, METH_VARARGS,
     "message_ids(prefix, places): the ids of the records at these places, joined by commas."},
    {NULL, NULL, 0, NULL},
};
