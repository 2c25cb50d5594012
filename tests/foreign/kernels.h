/* kernels.h - the kernels that the programs of this folder launch, and what they share besides. Nothing here is of the
 * project but the image, a file that is named on the command line.
 */
#ifndef FOREIGN_KERNELS_H
#define FOREIGN_KERNELS_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Ends the program unless the call succeeds. */
#define MUST(call) must((call), #call, __FILE__, __LINE__)
/* Ends the program unless the condition holds. */
#define HOLDS(condition) holds((condition), #condition, __FILE__, __LINE__)
void must(CUresult result, const char *call, const char *file, int line);
void holds(bool condition, const char *text, const char *file, int line);

/* Makes a context on the device, current from here on, and loads the image into it. */
CUcontext begin_context(CUdevice device, const char *image);

/* Word i becomes first + i. */
void fill_words(CUdeviceptr at, size_t words, uint32_t first);
/* The sum of the words; and what it is after fill_words(). */
uint64_t sum_words(CUdeviceptr at, size_t words);
uint64_t sum_of_fill(size_t words, uint32_t first);

#endif
