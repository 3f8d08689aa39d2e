/* The JSON header of a send, as fastjson writes it: no blanks, plain ASCII but in the properties,
 * numbers as strings or raw, fields in any order. What else msgspec reads is not read here. */
#include "send.h"

static const char begin[] = "{\"code\":310,";

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} Cursor;

static int skip(Cursor *cursor, char mark)
{
    if (cursor->at == cursor->end || *cursor->at != (uint8_t)mark) {
        return 0;
    }
    cursor->at++;
    return 1;
}

/* A string of printable ASCII without escapes. */
static int plain_text(Cursor *cursor, Text *text)
{
    if (!skip(cursor, '"')) {
        return 0;
    }
    text->start = cursor->at;
    while (cursor->at < cursor->end && *cursor->at != '"') {
        if (*cursor->at < 0x20 || *cursor->at > 0x7e || *cursor->at == '\\') {
            return 0;
        }
        cursor->at++;
    }
    text->size = (size_t)(cursor->at - text->start);
    return skip(cursor, '"');
}

/* Any string, not yet checked: ``copy_properties`` does that. */
static int raw_text(Cursor *cursor, Text *text)
{
    if (!skip(cursor, '"')) {
        return 0;
    }
    text->start = cursor->at;
    while (cursor->at < cursor->end && *cursor->at != '"') {
        if (*cursor->at == '\\' && ++cursor->at == cursor->end) {
            return 0;
        }
        cursor->at++;
    }
    text->size = (size_t)(cursor->at - text->start);
    return skip(cursor, '"');
}

static int digits(Cursor *cursor, int64_t lowest, int64_t highest, int64_t *number)
{
    int is_negative = skip(cursor, '-');
    const uint8_t *start = cursor->at;
    uint64_t value = 0;
    while (cursor->at < cursor->end && *cursor->at >= '0' && *cursor->at <= '9') {
        value = value * 10 + (uint64_t)(*cursor->at++ - '0');
        if (cursor->at - start > 18) { /* no born timestamp of this or any later age */
            return 0;
        }
    }
    if (cursor->at == start || (*start == '0' && (is_negative || cursor->at - start > 1))) {
        return 0;
    }
    *number = is_negative ? -(int64_t)value : (int64_t)value;
    return *number >= lowest && *number <= highest;
}

/* A number, raw or as a string. What may follow it is the caller's to check. */
static int number(Cursor *cursor, int64_t lowest, int64_t highest, int64_t *value)
{
    if (!skip(cursor, '"')) {
        return digits(cursor, lowest, highest, value);
    }
    return digits(cursor, lowest, highest, value) && skip(cursor, '"');
}

static int raw_int32(Cursor *cursor, int32_t *value)
{
    int64_t read;
    if (!digits(cursor, INT32_MIN, INT32_MAX, &read)) {
        return 0;
    }
    *value = (int32_t)read;
    return 1;
}

static int word(Cursor *cursor, const char *expected)
{
    size_t size = strlen(expected);
    if ((size_t)(cursor->end - cursor->at) < size || memcmp(cursor->at, expected, size) != 0) {
        return 0;
    }
    cursor->at += size;
    return 1;
}

static int truth(Cursor *cursor, int64_t *value)
{
    int is_text = skip(cursor, '"');
    *value = word(cursor, "true");
    return (*value || word(cursor, "false")) && (!is_text || skip(cursor, '"'));
}

static int any_value(Cursor *cursor)
{
    Text text;
    int64_t value;
    if (cursor->at < cursor->end && *cursor->at == '"') {
        return plain_text(cursor, &text);
    }
    return digits(cursor, INT64_MIN, INT64_MAX, &value);
}

static int is_word(Text text, const char *expected)
{
    return text.size == strlen(expected) && memcmp(text.start, expected, text.size) == 0;
}

/* One of SendMessageRequestHeaderV2: each has a letter. */
static int read_field(Cursor *cursor, Text key, Send *send)
{
    Text ignored;
    if (key.size != 1 || *key.start < 'a' || *key.start > 'm') {
        return any_value(cursor);
    }
    int64_t *value = &send->numbers[*key.start - 'a'];
    uint32_t bit = 1u << (*key.start - 'a');
    if (send->fields & bit) {
        return 0;
    }
    send->fields |= bit;
    switch (*key.start) {
    case 'a':
    case 'c':
        return plain_text(cursor, &ignored);
    case 'b':
        return plain_text(cursor, &send->topic);
    case 'g':
        return number(cursor, INT64_MIN, INT64_MAX, value);
    case 'i':
        return raw_text(cursor, &send->properties);
    case 'k':
        return truth(cursor, value);
    case 'm':
        return truth(cursor, value) && !*value;
    default:
        return number(cursor, INT32_MIN, INT32_MAX, value);
    }
}

static int note_field(Fields *fields, Text key, const uint8_t *start, const uint8_t *end)
{
    if (fields->count == MOST_FIELDS || *start != '"') {
        return 0;
    }
    fields->keys[fields->count] = key;
    fields->values[fields->count++] = (Text){start + 1, (size_t)(end - start) - 2};
    return 1;
}

static int read_fields(Cursor *cursor, Send *send, Fields *fields)
{
    if (!skip(cursor, '{')) {
        return 0;
    }
    do {
        Text key;
        if (!plain_text(cursor, &key) || !skip(cursor, ':')) {
            return 0;
        }
        const uint8_t *value = cursor->at;
        if (!read_field(cursor, key, send) ||
            (fields != NULL && !note_field(fields, key, value, cursor->at))) {
            return 0;
        }
    } while (skip(cursor, ','));
    const uint32_t required = (1u << ('h' - 'a' + 1)) - 1;
    return skip(cursor, '}') && (send->fields & required) == required;
}

int read_send_header(const uint8_t *start, const uint8_t *end, Send *send, Fields *fields)
{
    enum { EXT_FIELDS = 1, OPAQUE = 2, HEAD_FLAG = 4, VERSION = 8, LANGUAGE = 16 };
    Cursor cursor = {start, end};
    uint32_t met = 0, met_now;
    memset(send, 0, sizeof *send);
    if (!word(&cursor, begin)) {
        return 0;
    }
    do {
        Text key, ignored;
        int32_t version;
        int good;
        if (!plain_text(&cursor, &key) || !skip(&cursor, ':')) {
            return 0;
        }
        if (is_word(key, "extFields")) {
            met_now = EXT_FIELDS;
            good = read_fields(&cursor, send, fields);
        } else if (is_word(key, "opaque")) {
            met_now = OPAQUE;
            good = raw_int32(&cursor, &send->opaque);
        } else if (is_word(key, "flag")) {
            met_now = HEAD_FLAG;
            good = raw_int32(&cursor, &send->flag);
        } else if (is_word(key, "version")) {
            met_now = VERSION;
            good = raw_int32(&cursor, &version);
        } else if (is_word(key, "language")) {
            met_now = LANGUAGE;
            good = plain_text(&cursor, &ignored);
        } else {
            met_now = 0;
            good = any_value(&cursor) && !is_word(key, "code");
        }
        if (!good || met & met_now) {
            return 0;
        }
        met |= met_now;
    } while (skip(&cursor, ','));
    return skip(&cursor, '}') && cursor.at == end && (met & EXT_FIELDS) && (met & OPAQUE) &&
           !(send->flag & FLAG_RESPONSE) && !(send->numbers[SYS_FLAG] & TRANSACTION_MASK);
}
