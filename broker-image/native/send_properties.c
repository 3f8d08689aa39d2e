/* The properties of a send: from a JSON string to what a record carries. Twin:
 * failback/broker/messaging/send_rules.py. */
#include "send.h"

#define MAX_PROPERTY_BYTES 32767
#define NAME_END 1
#define PROPERTY_END 2

static int hex_unit(const uint8_t *at, uint32_t *unit)
{
    *unit = 0;
    for (int digit = 0; digit < 4; digit++) {
        uint8_t mark = at[digit];
        int is_digit = mark >= '0' && mark <= '9', letter = mark | 0x20;
        if (!is_digit && (letter < 'a' || letter > 'f')) {
            return 0;
        }
        *unit = *unit << 4 | (uint32_t)(is_digit ? mark - '0' : letter - 'a' + 10);
    }
    return *unit < 0xd800 || *unit > 0xdfff;
}

/* How many bytes a character has that begins with ``at[0]``, 0 if none does. Strict UTF-8. */
static size_t character(const uint8_t *at, const uint8_t *end)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t size = *at < 0x80 ? 1 : *at >> 5 == 6 ? 2 : *at >> 4 == 14 ? 3 : *at >> 3 == 30 ? 4 : 0;
    if (size == 0 || (size_t)(end - at) < size) {
        return 0;
    }
    uint32_t code = size == 1 ? *at : *at & (0x7fu >> size);
    for (size_t next = 1; next < size; next++) {
        if (at[next] >> 6 != 2) {
            return 0;
        }
        code = code << 6 | (at[next] & 0x3f);
    }
    return code < least[size] || (code >= 0xd800 && code <= 0xdfff) || code > 0x10ffff ? 0 : size;
}

static uint8_t *put_unit(uint8_t *out, uint32_t unit)
{
    if (unit < 0x80) {
        *out++ = (uint8_t)unit;
    } else {
        if (unit < 0x800) {
            *out++ = (uint8_t)(0xc0 | unit >> 6);
        } else {
            *out++ = (uint8_t)(0xe0 | unit >> 12);
            *out++ = (uint8_t)(0x80 | (unit >> 6 & 0x3f));
        }
        *out++ = (uint8_t)(0x80 | (unit & 0x3f));
    }
    return out;
}

int64_t copy_properties(Text text, uint8_t *out)
{
    static const char names[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const uint8_t *at = text.start, *end = at + text.size;
    uint8_t *start = out;
    while (at < end) {
        if (*at < 0x20) {
            return -1;
        }
        if (*at != '\\') {
            size_t size = *at < 0x80 ? 1 : character(at, end);
            if (size == 0) {
                return -1;
            }
            do {
                *out++ = *at++;
            } while (--size);
            continue;
        }
        if (end - at < 2) {
            return -1;
        }
        if (at[1] == 'u') {
            uint32_t unit;
            if (end - at < 6 || !hex_unit(at + 2, &unit)) {
                return -1;
            }
            out = put_unit(out, unit);
            at += 6;
            continue;
        }
        const char *name = at[1] ? strchr(names, at[1]) : NULL;
        if (name == NULL) {
            return -1;
        }
        *out++ = (uint8_t)meant[name - names];
        at += 2;
    }
    return out - start;
}

/* String.hashCode() of valid UTF-8. */
static int32_t java_hash(const uint8_t *at, const uint8_t *end)
{
    uint32_t state = 0;
    while (at < end) {
        if (*at < 0x80) {
            state = 31 * state + *at++;
            continue;
        }
        uint32_t size = *at >> 5 == 6 ? 2 : *at >> 4 == 14 ? 3 : 4, code = *at & (0x7fu >> size);
        for (uint32_t next = 1; next < size; next++) {
            code = code << 6 | (at[next] & 0x3f);
        }
        at += size;
        if (code > 0xffff) {
            state = 31 * state + (0xd7c0 + (code >> 10));
            code = 0xdc00 | (code & 0x3ff);
        }
        state = 31 * state + code;
    }
    return (int32_t)state;
}

static int ends_with(const uint8_t *start, const uint8_t *end, const char *name)
{
    size_t size = strlen(name);
    return (size_t)(end - start) >= size && memcmp(end - size, name, size) == 0;
}

/* Whether a property's name ends here and is ``name``, not only the end of another one. */
static int is_name(const uint8_t *start, const uint8_t *end, const char *name)
{
    size_t size = strlen(name);
    return ends_with(start, end, name) &&
           ((size_t)(end - start) == size || *(end - size - 1) == PROPERTY_END);
}

static int means_true(const uint8_t *at, const uint8_t *end)
{
    if (end - at != 4) {
        return 0;
    }
    for (int letter = 0; letter < 4; letter++) {
        uint8_t mark = at[letter];
        if ((mark >= 'A' && mark <= 'Z' ? mark + 32 : mark) != "true"[letter]) {
            return 0;
        }
    }
    return 1;
}

int settle_properties(uint8_t *start, size_t size, PyObject *cluster, Properties *settled)
{
    uint8_t *end = start + size, *wait = NULL, *wait_end = NULL;
    int has_tags = 0;
    *settled = (Properties){0, 0, 1};
    for (uint8_t *at = start; at < end && (at = memchr(at, NAME_END, (size_t)(end - at))); at++) {
        if (ends_with(start, at, "TRAN_MSG") || ends_with(start, at, "DELAY") ||
            is_name(start, at, "CLUSTER")) {
            return 0;
        }
        int is_tags = !has_tags && is_name(start, at, "TAGS");
        int is_wait = wait == NULL && is_name(start, at, "WAIT");
        if (!is_tags && !is_wait) {
            continue;
        }
        uint8_t *stop = memchr(at, PROPERTY_END, (size_t)(end - at));
        stop = stop ? stop : end;
        if (is_tags) {
            has_tags = 1;
            settled->tags_code = java_hash(at + 1, stop);
        } else {
            wait = at - 4;
            wait_end = stop < end ? stop + 1 : end;
            settled->waits = means_true(at + 1, stop);
        }
    }
    if (wait != NULL) {
        memmove(wait, wait_end, (size_t)(end - wait_end));
        end -= wait_end - wait;
    }
    if (end > start && end[-1] != PROPERTY_END) {
        *end++ = PROPERTY_END;
    }
    memcpy(end, PyBytes_AS_STRING(cluster), (size_t)PyBytes_GET_SIZE(cluster));
    settled->size = (size_t)(end - start) + (size_t)PyBytes_GET_SIZE(cluster);
    return settled->size <= MAX_PROPERTY_BYTES;
}
