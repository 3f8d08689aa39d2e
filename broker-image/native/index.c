#include "kernels.h"

PyMethodDef index_methods[] = {{NULL, NULL, 0, NULL}};
