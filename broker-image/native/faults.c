/* Pages of mapped files that can't be read: behind an end that somebody cut, or on a bad sector. The
 * system answers the first touch with SIGBUS, which ends a process. Here such a page is replaced by
 * one of zeros and counted, and whoever read asks whether the count has changed. The one file of the
 * kernels that keeps state: a signal knows no other place for it. */
#include "kernels.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

static atomic_long bad_pages;
static long page_bytes;
static struct sigaction before;

static void on_bus_error(int signum, siginfo_t *info, void *context)
{
    (void)context;
    int kept = errno;
    if (info->si_code == BUS_ADRERR) {
        void *page = (void *)((uintptr_t)info->si_addr & ~((uintptr_t)page_bytes - 1));
        /* A system call like any other: what POSIX does not promise of mmap in a handler, Linux keeps. */
        if (mmap(page, (size_t)page_bytes, PROT_READ | PROT_WRITE,
                 MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) {
            atomic_fetch_add(&bad_pages, 1);
            errno = kept;
            return;
        }
    }
    sigaction(signum, &before, NULL); /* it happens again at once, and is none of ours */
    errno = kept;
}

static PyObject *catch_bus_errors(PyObject *module, PyObject *none)
{
    (void)module, (void)none;
    if (page_bytes == 0) {
        page_bytes = sysconf(_SC_PAGESIZE);
        struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_ONSTACK};
        sigemptyset(&action.sa_mask);
        if (sigaction(SIGBUS, &action, &before) < 0) {
            page_bytes = 0;
            return PyErr_SetFromErrno(PyExc_OSError);
        }
    }
    Py_RETURN_NONE;
}

static PyObject *count_bad_pages(PyObject *module, PyObject *none)
{
    (void)module, (void)none;
    return PyLong_FromLong(atomic_load(&bad_pages));
}

/* Touch every page of a view; return whether it begins with a record, if that is asked. */
static int touch_one(PyObject *data, int are_records)
{
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) {
        return -1;
    }
    const volatile uint8_t *bytes = view.buf;
    for (Py_ssize_t at = 0; at < view.len; at += 4096) {
        (void)bytes[at];
    }
    int good = 1;
    if (view.len > 0) {
        (void)bytes[view.len - 1];
        good = !are_records || (view.len >= 8 && read_u32((const uint8_t *)view.buf + 4) == V1_MAGIC);
    }
    PyBuffer_Release(&view);
    return good;
}

static PyObject *touch(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 2 || !PyTuple_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "touch(views, are_records)");
        return NULL;
    }
    int are_records = PyObject_IsTrue(args[1]);
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(args[0]); at++) {
        int good = touch_one(PyTuple_GET_ITEM(args[0], at), are_records);
        if (good < 0) {
            return NULL;
        }
        if (!good) {
            return PyLong_FromLong(-1);
        }
    }
    return PyLong_FromLong(atomic_load(&bad_pages));
}

PyMethodDef fault_methods[] = {
    {"catch_bus_errors", catch_bus_errors, METH_NOARGS,
     "catch_bus_errors(): replace pages that can't be read by zeros from now on."},
    {"bad_pages", count_bad_pages, METH_NOARGS, "bad_pages(): how many pages were replaced."},
    {"touch", (PyCFunction)(void (*)(void))touch, METH_FASTCALL,
     "touch(views, are_records): read a byte of every page of each view of a tuple; return\n"
     "bad_pages(), or -1 if are_records and one of them does not begin with a record."},
    {NULL, NULL, 0, NULL},
};
