/* Kernels of the broker's hot paths. Each has a twin in Python that says what it must do; see
 * failback/broker/native.py. Nothing in here but faults.c keeps state or knows of files and sockets. */
#ifndef FAILBACK_KERNELS_H
#define FAILBACK_KERNELS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the kernels swap bytes for little-endian machines; without them the broker runs in Python"
#endif

extern PyMethodDef batch_methods[];
extern PyMethodDef crc_methods[];
extern PyMethodDef dispatch_methods[];
extern PyMethodDef fault_methods[];
extern PyMethodDef index_methods[];
extern PyMethodDef reading_methods[];
extern PyMethodDef recovery_methods[];
extern PyMethodDef send_methods[];
extern PyMethodDef signed_methods[];

#define V1_MAGIC 0xDAA320A7u /* of a record; V1_MAGIC of failback/protocol/message.py */

/* zlib.crc32 of these bytes; a record has it without the top bit. */
uint32_t crc32_of(const uint8_t *at, size_t length);

/* Let the state of a SHA-1 take whole blocks of 64 bytes. */
void sha1_blocks(uint32_t state[5], const uint8_t *blocks, size_t count);

static inline uint16_t read_u16(const uint8_t *at) { return (uint16_t)(at[0] << 8 | at[1]); }

static inline uint32_t read_u32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, 4);
    return __builtin_bswap32(value);
}

static inline uint64_t read_u64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, 8);
    return __builtin_bswap64(value);
}

static inline void write_u16(uint8_t *at, uint16_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static inline void write_u32(uint8_t *at, uint32_t value)
{
    value = __builtin_bswap32(value);
    memcpy(at, &value, 4);
}

static inline void write_u64(uint8_t *at, uint64_t value)
{
    value = __builtin_bswap64(value);
    memcpy(at, &value, 8);
}

#endif
