/* What dispatch, index and recovery share: the properties of a record that matter to them, and its keys. */
#ifndef FAILBACK_KEYS_H
#define FAILBACK_KEYS_H

#include "kernels.h"

enum {
    FIXED_BYTES = 91, /* of a record with IPv4 hosts and nothing of variable length */
    HEAD_BYTES = 88,  /* up to its body */
    RARE_FLAGS = 0x34, /* longer hosts; prepared and rolled back */
};

struct span {
    const uint8_t *at;
    Py_ssize_t bytes;
};

/* Values that are empty or missing have no bytes. */
struct properties {
    struct span tags, unique, keys;
};

/* As three native int64, so that Python reads it with struct "=qqq". */
struct packed_key {
    int64_t hash, physical_offset, store_timestamp;
};

struct key_list {
    struct packed_key *keys;
    Py_ssize_t count, room;
    /* Neighbours share their topic; -1 where none is kept. */
    Py_ssize_t topic_bytes;
    uint32_t topic_state;
    uint8_t topic[256];
};

#define KEY_LIST {.keys = NULL, .count = 0, .room = 0, .topic_bytes = -1}

/* What can fail returns -1 or NULL then, with an exception set. */
void find_properties(struct span properties, struct properties *found);
int java_hash(struct span text, uint32_t *state);
int add_record_keys(struct key_list *list, const struct properties *of, struct span topic,
                    int64_t physical_offset, int64_t store_timestamp);
PyObject *packed_bytes(const struct key_list *list);
void free_keys(struct key_list *list);

#endif
