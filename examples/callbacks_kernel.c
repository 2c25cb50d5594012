/* The kernel of callbacks.c: its blocks ask the host for work until there is none. */
#include <gvmem/device/callback.h>

/* The same in callbacks.c. */
enum { NEXT_PART, ODD_ONE, PROGRESS };
typedef struct work_params {
    gvm_callback_view server;
    uint64_t *failures;
} work_params;

GVM_KERNEL(work, work_params, p)
{
    uint64_t words[3], sum, i;
    const uint32_t *values;

    words[2] = 0; /* what the part before has summed up to */
    for (;;) {
        if (gvm_callback_call_block(&p.server, NEXT_PART, words, 3) != GVM_CALLBACK_OK) {
            if (gvm_thread() == 0)
                gvm_atomic_add_u64(p.failures, 1);
            return;
        }
        if (words[1] == 0) /* no part is left */
            return;
        values = (const uint32_t *)(uintptr_t)words[0];
        sum = 0;
        for (i = gvm_thread(); i < words[1]; i += gvm_block_threads()) {
            sum += values[i];
            if (values[i] % 10007 == 0) { /* seldom: the thread goes on */
                const uint64_t odd[1] = {values[i]};

                if (gvm_callback_post(&p.server, ODD_ONE, odd, 1) != GVM_CALLBACK_OK)
                    gvm_atomic_add_u64(p.failures, 1);
            }
        }
        words[2] = gvm_block_sum_u64(sum); /* of thread 0, whose words are passed */
        if (gvm_thread() == 0 && gvm_callback_signal(&p.server, PROGRESS) != GVM_CALLBACK_OK)
            gvm_atomic_add_u64(p.failures, 1);
    }
}
