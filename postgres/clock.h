/* postgres/clock.h - deadlines: nanoseconds on CLOCK_MONOTONIC. */
#ifndef GSTORE_CLOCK_H
#define GSTORE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define GSTORE_NS_PER_MS INT64_C(1000000)

static inline int64_t
gstore_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 * GSTORE_NS_PER_MS + now.tv_nsec;
}

static inline int64_t
gstore_deadline_ns(int64_t in_ms)
{
	return gstore_now_ns() + in_ms * GSTORE_NS_PER_MS;
}

#endif
