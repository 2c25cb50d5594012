/* wait.c: what those use that know nothing of Python, too. */
#ifndef GVMEM_PYTHON_WAIT_H
#define GVMEM_PYTHON_WAIT_H

#include <gvmem/device.h>

/* *function is a pointer to a function. */
gvm_status driver_find_call(const char *name, void *function);

/* Waits for all work of this process on the GPU, also while streams are captured. GVM_E_DRIVER: it may go on; GVM_E_LOST: the
 * context is lost, and none runs. */
gvm_status device_wait(gvm_device *device);

#endif
