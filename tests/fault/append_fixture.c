/* Appenders, for scenarios. Their reservation has too few chunks for the library's thread to commit
 * what nobody has asked for: nothing is under way when calls are counted and made to fail. Their ends are graded,
 * and begin commits the two chunks of one together, as after a launch that wrote so much. */
#include "appender/appender.h"
#include "tests/fault/fault.h"

#define ROW_BYTES 64

bool append_make(fixture *w, bool begun)
{
    const gvm_appender_options options = {.struct_size = sizeof options, .chunk_bytes = 4 * CHUNK};

    if (gvm_appender_create(w->device, ROW_BYTES, 4 * CHUNKS * CHUNK, &options, &w->appender) != GVM_OK)
        return false;
    w->appender->front_history = 4 * CHUNK;
    if (run_appender_begin(w) != GVM_OK)
        return false;
    w->appender->front_history = 4 * CHUNK;
    return begun || gvm_appender_finish(w->appender, NULL, NULL) == GVM_OK;
}

bool append_intact(fixture *w)
{
    gvm_appender_info info = {.struct_size = sizeof info};

    return w->appender == NULL ||
           (gvm_appender_get_info(w->appender, &info) == GVM_OK && !info.torn && info.rows == 0 &&
            (info.begun || gvmi_appender_check(w->appender)));
}

gvm_status run_appender_create(fixture *w)
{
    return gvm_appender_create(w->device, ROW_BYTES, CHUNKS * CHUNK, NULL, &w->appender);
}

bool shows_appender_create(fixture *w)
{
    return run_appender_begin(w) == GVM_OK && run_appender_finish(w) == GVM_OK;
}

gvm_status run_appender_begin(fixture *w)
{
    gvm_append append = {.struct_size = sizeof append};

    return gvm_appender_begin(w->appender, &append);
}

bool shows_appender_begin(fixture *w)
{
    return run_appender_finish(w) == GVM_OK;
}

gvm_status run_appender_finish(fixture *w)
{
    gvm_appender_result result = {.struct_size = sizeof result};
    gvm_status status = gvm_appender_finish(w->appender, NULL, &result);

    if (status == GVM_OK && !result.complete)
        return GVM_E_FORMAT;
    return status;
}

bool shows_appender_finish(fixture *w)
{
    return run_appender_begin(w) == GVM_OK && run_appender_finish(w) == GVM_OK;
}

gvm_status run_appender_take(fixture *w)
{
    return gvm_appender_take(w->appender, &w->taken);
}

bool shows_appender_take(fixture *w)
{
    return w->taken != NULL && gvm_buffer_address(w->taken) != NULL &&
           gvm_appender_buffer(w->appender) != w->taken && shows_appender_finish(w);
}
