/* SHA-1 of whole blocks, for signatures; hashlib says what it must do. Its objects, made for each
 * message, take as long as its sum. */
#include "kernels.h"

static uint32_t rotated(uint32_t value, int by) { return value << by | value >> (32 - by); }

static void compress(uint32_t state[5], const uint8_t *block)
{
    static const uint32_t constants[] = {0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6};
    uint32_t w[80], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
    for (int at = 0; at < 80; at++) {
        w[at] = at < 16 ? read_u32(block + 4 * at)
                        : rotated(w[at - 3] ^ w[at - 8] ^ w[at - 14] ^ w[at - 16], 1);
        uint32_t mixed = at / 20 == 0   ? (b & c) | (~b & d)
                         : at / 20 == 2 ? (b & c) | (b & d) | (c & d)
                                        : b ^ c ^ d;
        uint32_t next = rotated(a, 5) + mixed + e + constants[at / 20] + w[at];
        e = d, d = c, c = rotated(b, 30), b = a, a = next;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d, state[4] += e;
}

#if defined __x86_64__ && !defined PLAIN_SHA1
#include <cpuid.h>
#include <immintrin.h>

static int has_instructions(void)
{
    static int is_known, has;
    unsigned a, b, c, d;
    if (!is_known) { /* asking takes microseconds in a virtual machine */
        has = __builtin_cpu_supports("sse4.1") && __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
              b >> 29 & 1;
        is_known = 1;
    }
    return has;
}

/* Four rounds, and the four words of the message that are four of these later. */
#define ROUNDS(at)                                                                                 \
    e = (at) ? _mm_sha1nexte_epu32(e, w[(at) % 4]) : _mm_add_epi32(e, w[0]);                       \
    before = abcd;                                                                                 \
    abcd = _mm_sha1rnds4_epu32(abcd, e, (at) / 5);                                                 \
    e = before;                                                                                    \
    w[(at) % 4] = _mm_sha1msg2_epu32(                                                              \
        _mm_xor_si128(_mm_sha1msg1_epu32(w[(at) % 4], w[((at) + 1) % 4]), w[((at) + 2) % 4]),      \
        w[((at) + 3) % 4]);
#define TWENTY(at) ROUNDS(at) ROUNDS((at) + 1) ROUNDS((at) + 2) ROUNDS((at) + 3) ROUNDS((at) + 4)

__attribute__((target("sha,sse4.1"))) static void compress_fast(uint32_t state[5],
                                                                const uint8_t *block, size_t count)
{
    const __m128i swap = _mm_set_epi64x(0x0001020304050607, 0x08090a0b0c0d0e0f);
    __m128i abcd = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state), 0x1b);
    __m128i e = _mm_set_epi32((int)state[4], 0, 0, 0);
    for (; count; count--, block += 64) {
        __m128i first_abcd = abcd, first_e = e, before, w[4];
        for (int at = 0; at < 4; at++) {
            w[at] = _mm_loadu_si128((const __m128i *)(block + 16 * at));
            w[at] = _mm_shuffle_epi8(w[at], swap);
        }
        TWENTY(0) TWENTY(5) TWENTY(10) TWENTY(15)
        e = _mm_sha1nexte_epu32(e, first_e);
        abcd = _mm_add_epi32(abcd, first_abcd);
    }
    _mm_storeu_si128((__m128i *)state, _mm_shuffle_epi32(abcd, 0x1b));
    state[4] = (uint32_t)_mm_extract_epi32(e, 3);
}
#endif

void sha1_blocks(uint32_t state[5], const uint8_t *blocks, size_t count)
{
#if defined __x86_64__ && !defined PLAIN_SHA1
    if (has_instructions()) {
        compress_fast(state, blocks, count);
        return;
    }
#endif
    for (; count; count--, blocks += 64) {
        compress(state, blocks);
    }
}
