/* tests/lib/units.h - sizes in bytes, and how much more time a program needs that is checked while it runs. */
#ifndef LIB_UNITS_H
#define LIB_UNITS_H

#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define GIB (1ull << 30)
#define TIB (1ull << 40)

/* For time-outs that must not be met. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOWNESS 5u
#else
#define SLOWNESS 1u
#endif

#endif
