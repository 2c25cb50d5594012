/* Callback servers, for scenarios. The test is the kernel that calls, where the device is the software GPU. */
#include <gvmem/device/callback.h>

#include "tests/fault/fault.h"

enum { DOUBLE, COUNT };

static gvm_status make_double(void *context, gvm_callback_args *args)
{
    (void)context;
    args->words[0] *= 2;
    return GVM_OK;
}

static gvm_status count_requests(void *context, gvm_callback_args *args)
{
    args->words[0] = *(uint64_t *)context += args->requests;
    return GVM_OK;
}

gvm_status run_callback_server_create(fixture *w)
{
    const gvm_callback_server_options options = {.struct_size = sizeof options, .thread_count = 3};

    return gvm_callback_server_create(w->device, &options, &w->server);
}

static bool calls_come_back(const gvm_callback_view *view)
{
    uint64_t word = 21, seen = 0;

    return gvm_callback_call(view, DOUBLE, &word, 1) == GVM_CALLBACK_OK && word == 42 &&
           gvm_callback_signal(view, COUNT) == GVM_CALLBACK_OK &&
           gvm_callback_join(view, COUNT, &seen) == GVM_CALLBACK_OK && seen == 2;
}

bool shows_callback_server_create(fixture *w)
{
    gvm_callback_view view;
    uint64_t sum = 0;

    return gvm_callback_register(w->server, DOUBLE, 0, make_double, NULL) == GVM_OK &&
           gvm_callback_register(w->server, COUNT, GVM_CALLBACK_COLLECTIVE, count_requests, &sum) ==
               GVM_OK &&
           gvm_callback_server_get_view(w->server, &view) == GVM_OK &&
           (!runs_device_functions(w) || calls_come_back(&view)) &&
           gvm_callback_server_drain(w->server) == GVM_OK &&
           gvm_callback_server_close(w->server) == GVM_OK;
}
