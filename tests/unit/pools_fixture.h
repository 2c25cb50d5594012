/* tests/unit/pools_fixture.h - python/src/pools.c as frameworks load it, and calls of it. */
#ifndef POOLS_FIXTURE_H
#define POOLS_FIXTURE_H

#include "tests/unit/unit.h"

#include <dlfcn.h>

#include <gvmem/heap.h>

#include "python/src/pools.h"

static const char *library;
static const pool_calls *calls;
static void *loaded;

/* In a child: what is loaded before is forgotten by fork(). */
static bool load_pools(void)
{
    loaded = dlopen(library, RTLD_NOW);
    if (loaded != NULL)
        calls = dlsym(loaded, "pools");
    return calls != NULL && calls->struct_bytes == sizeof *calls;
}

static void choose(pools_options options)
{
    void (*call)(const pools_options *options);

    *(void **)&call = dlsym(loaded, "pools_choose");
    call(&options);
}

static void *take(uint64_t bytes, int device, void *stream)
{
    void *ptr;

    return calls->alloc(device, bytes, stream, &ptr) == 0 ? ptr : NULL;
}

static bool give(void *ptr)
{
    return calls->free(ptr) == 0;
}

#endif
