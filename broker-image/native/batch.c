#include "kernels.h"

PyMethodDef batch_methods[] = {{NULL, NULL, 0, NULL}};
