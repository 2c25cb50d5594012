/* memory/pace.h - how often a thread looks whether a kernel has asked for something.
 *
 * While something was asked a moment ago it spins, because a kernel that waits costs a whole device; later it naps between two
 * looks.
 */
#ifndef GVMI_MEMORY_PACE_H
#define GVMI_MEMORY_PACE_H

#include <stdint.h>

#include "base/clock.h"

#define GVMI_PACE_SPIN_NS (2 * GVMI_NS_PER_MS) /* after the last thing that was asked */
#define GVMI_PACE_NAP_NS (GVMI_NS_PER_MS / 20)
#define GVMI_PACE_NAP_LONG_NS GVMI_NS_PER_MS /* once nothing has been asked for QUIET_NS */
#define GVMI_PACE_QUIET_NS (200 * GVMI_NS_PER_MS)

/* How long to wait until the next look, when nothing was asked for so long; 0: spin. */
static inline int64_t gvmi_pace_nap_ns(int64_t quiet_ns)
{
    if (quiet_ns <= GVMI_PACE_SPIN_NS)
        return 0;
    return quiet_ns > GVMI_PACE_QUIET_NS ? GVMI_PACE_NAP_LONG_NS : GVMI_PACE_NAP_NS;
}

#endif
