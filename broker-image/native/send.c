#include "kernels.h"

PyMethodDef send_methods[] = {{NULL, NULL, 0, NULL}};
