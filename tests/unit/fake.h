/* tests/unit/fake.h - a driver that does nothing, to put under the decorators.
 *
 * Every call is counted and answers fake_result. Calls that make something give numbers that rise
 * and are never given twice.
 */
#ifndef UNIT_FAKE_H
#define UNIT_FAKE_H

#include "driver/driver.h"

extern CUresult fake_result;
extern uint64_t fake_calls[GVMI_CALL_COUNT];

const gvmi_driver *fake_driver(void);

#endif
