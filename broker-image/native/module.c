#include "kernels.h"

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "failback.broker._native",
    "Compiled twins of the broker's hot paths; use failback.broker.native.", 0, NULL,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void)
{
    PyMethodDef *all[] = {
        batch_methods, crc_methods,     dispatch_methods, fault_methods,
        index_methods, reading_methods, recovery_methods, send_methods,
        signed_methods,
    };
    PyObject *module = PyModule_Create(&definition);
    for (size_t at = 0; module != NULL && at < sizeof(all) / sizeof(*all); at++) {
        if (PyModule_AddFunctions(module, all[at]) < 0) {
            Py_CLEAR(module);
        }
    }
    return module;
}
