#include "kernels.h"

PyMethodDef dispatch_methods[] = {{NULL, NULL, 0, NULL}};
