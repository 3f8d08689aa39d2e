/* What the parts of the send kernel give each other. */
#ifndef FAILBACK_SEND_H
#define FAILBACK_SEND_H

#include "kernels.h"

#define TRANSACTION_MASK 0x0c
#define FLAG_RESPONSE 1
#define FLAG_ONEWAY 2

typedef struct {
    const uint8_t *start;
    size_t size;
} Text;

typedef struct {
    int64_t numbers[13]; /* by the letter of the field, from a on */
    uint32_t fields;     /* a bit for each letter that was met */
    int32_t opaque, flag;
    Text topic, properties; /* the properties with their escapes */
} Send;

enum { QUEUE_ID = 4, SYS_FLAG = 5, BORN_TIMESTAMP = 6, FLAG = 7, RECONSUME_TIMES = 9 };

typedef struct {
    size_t size;
    int32_t tags_code;
    int waits; /* whether the sender waits for flush and slave */
} Properties;

enum { MOST_FIELDS = 24 };

/* The extFields as they are written, in their order; values with their escapes. */
typedef struct {
    int count;
    Text keys[MOST_FIELDS], values[MOST_FIELDS];
} Fields;

/* Read a whole JSON header; 0 unless it is that of a plain V2 send. With ``fields``, which may be
 * NULL, also 0 where a value is no string or there are too many. */
int read_send_header(const uint8_t *start, const uint8_t *end, Send *send, Fields *fields);

/* Write a JSON string's text as UTF-8, never more bytes than it has; -1 if it is no such text. */
int64_t copy_properties(Text text, uint8_t *out);

/* Make of the ``size`` bytes at ``start`` what is stored: without WAIT, with CLUSTER. There is room
 * for the latter. 0 if they say that this is no plain message. */
int settle_properties(uint8_t *start, size_t size, PyObject *cluster, Properties *settled);

#endif
