/* What ``failback up --faults`` puts before the C library of a pod: the wall clock and calls on
 * files, as the runtime says in a file that is mapped here (faults.py writes it).
 *
 *     int64 which          the slot that counts; the other one is written, then this
 *     struct slot [2]
 *
 * Only the wall clock moves. Clocks that count from a start stay true, and so do waits: a wait until
 * an instant of the wall clock is not moved, which neither broker makes.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct slot {
    int64_t offset_ns;   /* what the clock is ahead by */
    int64_t since_ns;    /* since when it drifts, on the monotonic clock */
    double drift;        /* what it gains per second */
    int32_t sync_errno;  /* 0: a sync does not fail */
    int32_t sync_ms;     /* by what a sync is slower */
    int32_t open_errno;  /* of files of the store that are opened for writing */
    int32_t rename_errno;
};

struct control {
    volatile int64_t which;
    struct slot slots[2];
};

static struct control nothing;
static struct control *control = &nothing;
static const char *store = "";

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FAILBACK_FAULTS_FILE");
    const char *root = getenv("FAILBACK_FAULTS_STORE");
    if (root != NULL) store = root;
    int fd = path == NULL ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return;
    void *at = mmap(NULL, sizeof(struct control), PROT_READ, MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    if (at != MAP_FAILED) control = at;
}

static const struct slot *now_set(void) { return &control->slots[control->which & 1]; }

static int64_t shift_ns(void) {
    const struct slot *set = now_set();
    if (set->drift == 0) return set->offset_ns;
    struct timespec at;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &at);
    return set->offset_ns
        + (int64_t)(set->drift * (double)(at.tv_sec * 1000000000LL + at.tv_nsec - set->since_ns));
}

static void wall(struct timespec *at, int64_t by) {
    int64_t ns = at->tv_nsec + by % 1000000000LL;
    at->tv_sec += by / 1000000000LL + (ns >= 1000000000LL) - (ns < 0);
    at->tv_nsec = ns + (ns < 0 ? 1000000000LL : ns >= 1000000000LL ? -1000000000LL : 0);
}

int clock_gettime(clockid_t id, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (real == NULL) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, at);
    if (result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) wall(at, shift_ns());
    return result;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
    (void)zone;
    struct timespec at;
    int result = clock_gettime(CLOCK_REALTIME, &at);
    if (result == 0) *tv = (struct timeval){at.tv_sec, at.tv_nsec / 1000};
    return result;
}

time_t time(time_t *out) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    if (out != NULL) *out = at.tv_sec;
    return at.tv_sec;
}

static int failed(int32_t reason) {
    if (reason != 0) errno = reason;
    return reason != 0;
}

static int sync_fails(void) {
    const struct slot *set = now_set();
    if (set->sync_ms > 0) {
        struct timespec wait = {set->sync_ms / 1000, set->sync_ms % 1000 * 1000000L};
        syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &wait, NULL);
    }
    return failed(set->sync_errno);
}

int fsync(int fd) { return sync_fails() ? -1 : (int)syscall(SYS_fsync, fd); }

int fdatasync(int fd) { return sync_fails() ? -1 : (int)syscall(SYS_fdatasync, fd); }

int msync(void *at, size_t length, int flags) {
    return sync_fails() ? -1 : (int)syscall(SYS_msync, at, length, flags);
}

static int of_store(const char *path) {
    return store[0] != 0 && path != NULL && strncmp(path, store, strlen(store)) == 0;
}

static int opened(int folder, const char *path, int flags, int mode) {
    int writes = (flags & O_ACCMODE) != O_RDONLY || flags & O_CREAT;
    if (writes && of_store(path) && failed(now_set()->open_errno)) return -1;
    return (int)syscall(SYS_openat, folder, path, flags, mode);
}

#define MODE_OF(flags)                                                                             \
    int mode = 0;                                                                                  \
    if (flags & (O_CREAT | __O_TMPFILE)) {                                                         \
        va_list rest;                                                                              \
        va_start(rest, flags);                                                                     \
        mode = va_arg(rest, int);                                                                  \
        va_end(rest);                                                                              \
    }

int open(const char *path, int flags, ...) {
    MODE_OF(flags)
    return opened(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    MODE_OF(flags)
    return opened(AT_FDCWD, path, flags | O_LARGEFILE, mode);
}

int openat(int folder, const char *path, int flags, ...) {
    MODE_OF(flags)
    return opened(folder, path, flags, mode);
}

int rename(const char *from, const char *to) {
    if (of_store(to) && failed(now_set()->rename_errno)) return -1;
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}
