#include "keys.h"

/* --- keys: twins of keys_of, KeyHasher and KeyScan in failback/broker/store/index/index_keys.py --- */

static int begins_with(const uint8_t *at, Py_ssize_t bytes, const char *name, Py_ssize_t length,
                       struct span *value)
{
    if (bytes <= length || memcmp(at, name, (size_t)length) != 0) {
        return 0;
    }
    value->at = at + length;
    value->bytes = bytes - length;
    return 1;
}

/* Of several of one name the last that has a value counts, as for property_value. */
void find_properties(struct span properties, struct properties *found)
{
    const uint8_t *at = properties.at, *end = at + properties.bytes;
    *found = (struct properties){{NULL, 0}, {NULL, 0}, {NULL, 0}};
    while (at < end) {
        const uint8_t *stop = memchr(at, 2, (size_t)(end - at));
        Py_ssize_t bytes = (stop == NULL ? end : stop) - at;
        if (bytes > 5) {
            switch (at[0]) {
            case 'T':
                begins_with(at, bytes, "TAGS\x01", 5, &found->tags);
                break;
            case 'U':
                begins_with(at, bytes, "UNIQ_KEY\x01", 9, &found->unique);
                break;
            case 'K':
                begins_with(at, bytes, "KEYS\x01", 5, &found->keys);
                break;
            }
        }
        if (stop == NULL) {
            return;
        }
        at = stop + 1;
    }
}

/* Continue String.hashCode over ASCII; return whether it was. */
static int hash_ascii(struct span text, uint32_t *state)
{
    const uint8_t *at = text.at;
    Py_ssize_t left = text.bytes;
    uint32_t hash = *state, seen = 0;
    for (; left >= 4; at += 4, left -= 4) { /* four at a time: one multiplication waits, not four */
        hash = hash * 923521u + at[0] * 29791u + at[1] * 961u + at[2] * 31u + at[3];
        seen |= (uint32_t)(at[0] | at[1] | at[2] | at[3]);
    }
    for (; left > 0; at++, left--) {
        hash = hash * 31u + at[0];
        seen |= at[0];
    }
    if (seen >= 0x80) {
        return 0;
    }
    *state = hash;
    return 1;
}

/* Continue String.hashCode over UTF-8 bytes, decoded with errors="replace". */
int java_hash(struct span text, uint32_t *state)
{
    if (hash_ascii(text, state)) {
        return 0;
    }
    PyObject *decoded = PyUnicode_DecodeUTF8((const char *)text.at, text.bytes, "replace");
    if (decoded == NULL) {
        return -1;
    }
    uint32_t hash = *state;
    int kind = PyUnicode_KIND(decoded);
    const void *data = PyUnicode_DATA(decoded);
    for (Py_ssize_t at = 0, end = PyUnicode_GET_LENGTH(decoded); at < end; at++) {
        uint32_t character = PyUnicode_READ(kind, data, at);
        if (character >= 0x10000) { /* two units in UTF-16 */
            hash = hash * 31u + (0xD800u + ((character - 0x10000) >> 10));
            character = 0xDC00u + ((character - 0x10000) & 0x3FF);
        }
        hash = hash * 31u + character;
    }
    Py_DECREF(decoded);
    *state = hash;
    return 0;
}

static int topic_state(struct key_list *list, struct span topic, uint32_t *state)
{
    if (list->topic_bytes == topic.bytes &&
        memcmp(list->topic, topic.at, (size_t)topic.bytes) == 0) {
        *state = list->topic_state;
        return 0;
    }
    *state = 0;
    if (java_hash(topic, state) < 0) {
        return -1;
    }
    *state = *state * 31u + '#';
    if (topic.bytes <= (Py_ssize_t)sizeof(list->topic)) {
        memcpy(list->topic, topic.at, (size_t)topic.bytes);
        list->topic_bytes = topic.bytes;
        list->topic_state = *state;
    }
    return 0;
}

static int more_room(struct key_list *list)
{
    Py_ssize_t room = list->room ? list->room * 2 : 256;
    struct packed_key *keys = PyMem_Realloc(list->keys, (size_t)room * sizeof(*keys));
    if (keys == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    list->keys = keys;
    list->room = room;
    return 0;
}

static int add_key(struct key_list *list, uint32_t state, struct span key, int64_t physical_offset,
                   int64_t store_timestamp)
{
    if (java_hash(key, &state) < 0 || (list->count == list->room && more_room(list) < 0)) {
        return -1;
    }
    uint32_t hash = state >> 31 ? 0u - state : state;
    list->keys[list->count++] = (struct packed_key){
        hash >> 31 ? 0 : hash, /* -2^31 has no counterpart */
        physical_offset,
        store_timestamp,
    };
    return 0;
}

/* Add UNIQ_KEY, then each of KEYS. */
int add_record_keys(struct key_list *list, const struct properties *of, struct span topic,
                    int64_t physical_offset, int64_t store_timestamp)
{
    if (of->unique.bytes == 0 && of->keys.bytes == 0) {
        return 0;
    }
    uint32_t state;
    if (topic_state(list, topic, &state) < 0) {
        return -1;
    }
    if (of->unique.bytes > 0 &&
        add_key(list, state, of->unique, physical_offset, store_timestamp) < 0) {
        return -1;
    }
    const uint8_t *at = of->keys.at;
    Py_ssize_t left = of->keys.bytes;
    while (left > 0) {
        const uint8_t *stop = memchr(at, ' ', (size_t)left);
        Py_ssize_t bytes = stop == NULL ? left : stop - at;
        if (bytes > 0 && add_key(list, state, (struct span){at, bytes}, physical_offset,
                                 store_timestamp) < 0) {
            return -1;
        }
        if (stop == NULL) {
            break;
        }
        at += bytes + 1;
        left -= bytes + 1;
    }
    return 0;
}

PyObject *packed_bytes(const struct key_list *list)
{
    return PyBytes_FromStringAndSize((const char *)list->keys,
                                     list->count * (Py_ssize_t)sizeof(*list->keys));
}

void free_keys(struct key_list *list)
{
    PyMem_Free(list->keys);
    list->keys = NULL;
}

static int add_packed(struct key_list *list, PyObject *packed)
{
    Py_ssize_t bytes = PyBytes_GET_SIZE(packed), size = (Py_ssize_t)sizeof(*list->keys);
    if (bytes % size) {
        PyErr_SetString(PyExc_ValueError, "no packed keys");
        return -1;
    }
    while (list->room - list->count < bytes / size) {
        if (more_room(list) < 0) {
            return -1;
        }
    }
    if (bytes) {
        memcpy(list->keys + list->count, PyBytes_AS_STRING(packed), (size_t)bytes);
        list->count += bytes / size;
    }
    return 0;
}

static int add_parts(struct key_list *list, PyObject *parts)
{
    if (!PyTuple_CheckExact(parts) || PyTuple_GET_SIZE(parts) != 4) {
        PyErr_SetString(PyExc_TypeError, "neither RecordParts nor packed keys");
        return -1;
    }
    PyObject *topic = PyTuple_GET_ITEM(parts, 2), *properties = PyTuple_GET_ITEM(parts, 3);
    if (!PyLong_Check(PyTuple_GET_ITEM(parts, 0)) || !PyLong_Check(PyTuple_GET_ITEM(parts, 1)) ||
        !PyBytes_Check(topic) || PyBytes_GET_SIZE(topic) < 1 || !PyBytes_Check(properties)) {
        PyErr_SetString(PyExc_TypeError, "these are no RecordParts");
        return -1;
    }
    int64_t physical_offset = PyLong_AsLongLong(PyTuple_GET_ITEM(parts, 0));
    int64_t store_timestamp = PyLong_AsLongLong(PyTuple_GET_ITEM(parts, 1));
    if ((physical_offset == -1 || store_timestamp == -1) && PyErr_Occurred()) {
        return -1;
    }
    struct properties found;
    find_properties((struct span){(const uint8_t *)PyBytes_AS_STRING(properties),
                                  PyBytes_GET_SIZE(properties)},
                    &found);
    return add_record_keys(list, &found,
                           (struct span){(const uint8_t *)PyBytes_AS_STRING(topic) + 1,
                                         PyBytes_GET_SIZE(topic) - 1},
                           physical_offset, store_timestamp);
}

static PyObject *pack_keys(PyObject *Py_UNUSED(module), PyObject *records)
{
    if (!PyList_CheckExact(records)) {
        PyErr_SetString(PyExc_TypeError, "records come as a list");
        return NULL;
    }
    if (PyList_GET_SIZE(records) == 1 && PyBytes_CheckExact(PyList_GET_ITEM(records, 0))) {
        return Py_NewRef(PyList_GET_ITEM(records, 0));
    }
    struct key_list list = KEY_LIST;
    PyObject *packed = NULL;
    int failed = 0;
    for (Py_ssize_t at = 0; !failed && at < PyList_GET_SIZE(records); at++) {
        PyObject *item = Py_NewRef(PyList_GET_ITEM(records, at));
        failed = PyBytes_CheckExact(item) ? add_packed(&list, item) : add_parts(&list, item);
        Py_DECREF(item);
    }
    if (!failed) {
        packed = packed_bytes(&list);
    }
    free_keys(&list);
    return packed;
}

/* Add the keys of at most *most plain records from byte ``at`` on; return where that ends. */
static Py_ssize_t scan_records(const uint8_t *data, Py_ssize_t end, Py_ssize_t at,
                               int64_t physical_offset, Py_ssize_t *most, struct key_list *list)
{
    for (; *most > 0; --*most) {
        if (end - at < FIXED_BYTES) {
            return end; /* no more than a blank record fits here */
        }
        const uint8_t *record = data + at;
        int64_t size = (int32_t)read_u32(record), body = (int32_t)read_u32(record + 84);
        if (read_u32(record + 4) != V1_MAGIC || read_u32(record + 36) & RARE_FLAGS || body < 0 ||
            HEAD_BYTES + body >= size || size > end - at) {
            return at;
        }
        const uint8_t *rest = record + HEAD_BYTES + body;
        int64_t rest_bytes = size - HEAD_BYTES - body, topic_bytes = rest[0];
        if (topic_bytes + 3 > rest_bytes ||
            read_u16(rest + topic_bytes + 1) != rest_bytes - topic_bytes - 3) {
            return at;
        }
        struct properties found;
        find_properties((struct span){rest + topic_bytes + 3, rest_bytes - topic_bytes - 3},
                        &found);
        if (add_record_keys(list, &found, (struct span){rest + 1, topic_bytes},
                            physical_offset + at, (int64_t)read_u64(record + 56)) < 0) {
            return -1;
        }
        at += size;
    }
    return at;
}

static PyObject *scan_keys(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer view;
    Py_ssize_t at, most;
    long long physical_offset;
    if (!PyArg_ParseTuple(arguments, "y*nLn:scan_keys", &view, &at, &physical_offset, &most)) {
        return NULL;
    }
    PyObject *result = NULL;
    struct key_list list = KEY_LIST;
    if (at < 0 || at > view.len || physical_offset < 0 ||
        physical_offset > INT64_MAX - (int64_t)view.len) {
        PyErr_SetString(PyExc_ValueError, "scan_keys begins outside of its view");
    } else {
        at = scan_records(view.buf, view.len, at, physical_offset, &most, &list);
        PyObject *packed = at < 0 ? NULL : packed_bytes(&list);
        if (packed != NULL) {
            result = Py_BuildValue("Nnn", packed, at, most);
        }
    }
    free_keys(&list);
    PyBuffer_Release(&view);
    return result;
}

/* --- index files: twins of IndexFile._chain in failback/broker/store/index/index_file.py and of
 * OsFileHandle.write_words in failback/broker/store/log/files.py ----------------------------- */

struct head {
    int64_t slot; /* -1: free */
    int32_t index, place;
};

/* The heads of the chains that a batch touched: a table by slot, and the order they came in. */
struct heads {
    struct head *table;
    uint32_t mask;
    int32_t count;
    uint32_t *order;
};

static int make_heads(struct heads *heads, Py_ssize_t most)
{
    uint32_t size = 64;
    while ((Py_ssize_t)size < most * 2) {
        size *= 2;
    }
    heads->mask = size - 1;
    heads->count = 0;
    heads->table = PyMem_Malloc(size * sizeof(*heads->table));
    heads->order = PyMem_Malloc((size_t)(most ? most : 1) * sizeof(*heads->order));
    if (heads->table == NULL || heads->order == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (uint32_t at = 0; at < size; at++) {
        heads->table[at].slot = -1;
    }
    return 0;
}

/* Return the entry of a slot; ``slot`` is -1 in it if the batch did not touch it yet. */
static struct head *find_head(struct heads *heads, int64_t slot, uint32_t *place)
{
    uint32_t at = (uint32_t)slot * 2654435761u;
    at = (at ^ at >> 15) & heads->mask;
    while (heads->table[at].slot != -1 && heads->table[at].slot != slot) {
        at = (at + 1) & heads->mask;
    }
    *place = at;
    return &heads->table[at];
}

static PyObject *heads_dict(const struct heads *heads, Py_ssize_t slots_at)
{
    PyObject *found = PyDict_New();
    for (int32_t at = 0; found != NULL && at < heads->count; at++) {
        const struct head *head = &heads->table[heads->order[at]];
        PyObject *position = PyLong_FromLongLong(slots_at + 4 * head->slot);
        PyObject *index = PyLong_FromLong(head->index);
        if (position == NULL || index == NULL || PyDict_SetItem(found, position, index) < 0) {
            Py_CLEAR(found);
        }
        Py_XDECREF(position);
        Py_XDECREF(index);
    }
    return found;
}

static int64_t seconds_since(int64_t begin, int64_t timestamp)
{
    if (begin <= 0 || timestamp <= begin) {
        return 0;
    }
    int64_t seconds = (timestamp - begin) / 1000;
    return seconds > INT32_MAX ? INT32_MAX : seconds;
}

struct chain {
    Py_ssize_t slots_at;
    int64_t slots, count, used, begin;
};

/* Lay out ``taken`` packed keys as entries, each before it the newest of its slot so far. */
static int chain_entries(struct chain *chain, struct heads *heads, const uint8_t *file,
                         const uint8_t *keys, Py_ssize_t taken, uint8_t *entries)
{
    for (Py_ssize_t at = 0; at < taken; at++, entries += 20) {
        struct packed_key key;
        memcpy(&key, keys + at * (Py_ssize_t)sizeof(key), sizeof(key));
        if (key.hash < 0 || key.hash > INT32_MAX) {
            PyErr_SetString(PyExc_ValueError, "a key hash has no sign and 31 bits");
            return -1;
        }
        int64_t slot = key.hash % chain->slots;
        uint32_t place;
        struct head *head = find_head(heads, slot, &place);
        int32_t previous;
        if (head->slot == slot) {
            previous = head->index;
        } else {
            head->slot = slot;
            heads->order[heads->count++] = place;
            previous = (int32_t)read_u32(file + chain->slots_at + 4 * slot);
            if (previous <= 0 || previous >= chain->count) {
                previous = 0;
                chain->used++;
            }
        }
        head->index = (int32_t)chain->count;
        write_u32(entries, (uint32_t)key.hash);
        write_u64(entries + 4, (uint64_t)key.physical_offset);
        write_u32(entries + 12, (uint32_t)seconds_since(chain->begin, key.store_timestamp));
        write_u32(entries + 16, (uint32_t)previous);
        if (chain->count == 1) {
            chain->begin = key.store_timestamp;
        }
        chain->count++;
    }
    return 0;
}

static PyObject *chained(struct chain *chain, const uint8_t *file, const uint8_t *keys,
                         Py_ssize_t taken)
{
    struct heads heads = {NULL, 0, 0, NULL};
    PyObject *result = NULL, *entries = PyBytes_FromStringAndSize(NULL, taken * 20), *words;
    if (entries != NULL && make_heads(&heads, taken) == 0 &&
        chain_entries(chain, &heads, file, keys, taken,
                      (uint8_t *)PyBytes_AS_STRING(entries)) == 0) {
        words = heads_dict(&heads, chain->slots_at);
        if (words != NULL) {
            result = Py_BuildValue("ONLL", entries, words, (long long)chain->used,
                                   (long long)chain->begin);
        }
    }
    Py_XDECREF(entries);
    PyMem_Free(heads.table);
    PyMem_Free(heads.order);
    return result;
}

static PyObject *chain_keys(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer file, keys;
    Py_ssize_t start, taken;
    long long slots_at, slots, count, used, begin;
    if (!PyArg_ParseTuple(arguments, "y*y*nnLLLLL:chain_keys", &file, &keys, &start, &taken,
                          &slots_at, &slots, &count, &used, &begin)) {
        return NULL;
    }
    PyObject *result = NULL;
    Py_ssize_t size = (Py_ssize_t)sizeof(struct packed_key), held = keys.len / size;
    if (start < 0 || taken < 0 || start > held || taken > held - start || taken > INT32_MAX / 4) {
        PyErr_SetString(PyExc_ValueError, "so many keys were not given");
    } else if (slots < 1 || slots_at < 0 || slots_at > file.len ||
               slots > (file.len - slots_at) / 4) {
        PyErr_SetString(PyExc_ValueError, "the file is too short for its slots");
    } else if (count < 1 || count > INT32_MAX - taken || used < INT32_MIN || used > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "no index file holds so many entries");
    } else {
        struct chain chain = {(Py_ssize_t)slots_at, slots, count, used, begin};
        result = chained(&chain, file.buf, (const uint8_t *)keys.buf + start * size, taken);
    }
    PyBuffer_Release(&keys);
    PyBuffer_Release(&file);
    return result;
}

static int write_word(const Py_buffer *file, PyObject *position, PyObject *value)
{
    if (!PyLong_Check(position) || !PyLong_Check(value)) {
        PyErr_SetString(PyExc_TypeError, "words are numbers at positions");
        return -1;
    }
    long long at = PyLong_AsLongLong(position), word = PyLong_AsLongLong(value);
    if ((at == -1 || word == -1) && PyErr_Occurred()) {
        return -1;
    }
    if (at < 0 || at > file->len - 4 || word < INT32_MIN || word > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a word does not fit, or not there");
        return -1;
    }
    write_u32((uint8_t *)file->buf + at, (uint32_t)word);
    return 0;
}

static PyObject *write_words(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *target, *words, *position, *value;
    if (!PyArg_ParseTuple(arguments, "OO!:write_words", &target, &PyDict_Type, &words)) {
        return NULL;
    }
    Py_buffer file;
    if (PyObject_GetBuffer(target, &file, PyBUF_WRITABLE) < 0) {
        return NULL;
    }
    int failed = 0;
    Py_ssize_t at = 0;
    while (!failed && PyDict_Next(words, &at, &position, &value)) {
        failed = write_word(&file, position, value);
    }
    PyBuffer_Release(&file);
    if (failed) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyMethodDef index_methods[] = {
    {"pack_keys", pack_keys, METH_O,
     "pack_keys(records): the keys of RecordParts, and those packed before, in their order."},
    {"scan_keys", scan_keys, METH_VARARGS,
     "scan_keys(view, at, physical_offset, most): packed keys of plain records, where that ends, "
     "how many more might have come."},
    {"chain_keys", chain_keys, METH_VARARGS,
     "chain_keys(file, keys, start, taken, slots_at, slots, count, used, begin): entries, heads of "
     "chains by position, used slots, begin timestamp."},
    {"write_words", write_words, METH_VARARGS,
     "write_words(file, words): each int32 at its position, big-endian."},
    {NULL, NULL, 0, NULL},
};
