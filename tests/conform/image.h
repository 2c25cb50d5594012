/* tests/conform/image.h - the kernels' image, and the contexts that hold it. For the harness, not
 * for cases. */
#ifndef CONFORM_IMAGE_H
#define CONFORM_IMAGE_H

#include "tests/conform/conform.h"

/* Loads the image named by --image, or the one beside the program that this driver takes. */
void conform_image_load(CUmodule *module);
/* The first device's context with kernels and memory for results, made current; and made current
 * again before each case. */
void conform_context_setup(void);
void conform_context_enter(void);

#endif
