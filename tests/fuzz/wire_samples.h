/* tests/fuzz/wire_samples.h - one valid message of every type of keeper/protocol/wire.h, with as many members
 * as can be neither zero nor alike: where unit tests and fuzzers begin. */
#ifndef FUZZ_WIRE_SAMPLES_H
#define FUZZ_WIRE_SAMPLES_H

#include "keeper/protocol/wire.h"

void wire_sample(gvmi_wire_type type, gvmi_wire_message *out);

#endif
