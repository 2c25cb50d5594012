/* tests/tools/test_sample.h - a made-up snapshot, for tests of what is made from one. */
#ifndef TOOLS_TEST_SAMPLE_H
#define TOOLS_TEST_SAMPLE_H

#include "tools/snapshot.h"

#define SAMPLE_OBJECTS 40
#define SAMPLE_CLIENTS 12
#define SAMPLE_DEVICES 2

typedef struct sample_data {
    snapshot_copy snapshot;
    gvm_keeper_device_info devices[SAMPLE_DEVICES];
    gvm_object_info objects[SAMPLE_OBJECTS];
    gvm_client_info clients[SAMPLE_CLIENTS];
} sample_data;

/* As it is after so many seconds. Every counter of object i rises by 10 * (i + 1) a second, that of
 * client i by i, the keeper's acquires by 1000; objects and clients are those that the counts say.
 * Names hold what a terminal, JSON and metrics must be guarded against. */
void sample_make(sample_data *out, unsigned seconds, unsigned objects, unsigned clients);

#endif
