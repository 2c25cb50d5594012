/* The settings: read from the environment once, so that all threads see the same values for life.
 */
#include "base/options.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <gvmem/device.h>

#include "base/error.h"
#include "base/size.h"
#include "base/struct.h"
#include "base/text.h"

#define ROW(name, fallback, text) \
    {sizeof(gvm_setting_info), #name, fallback, fallback, "default", text},
static gvm_setting_info settings[GVMI_OPTION_COUNT] = {GVMI_OPTIONS(ROW)};
#undef ROW

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_environment(void)
{
    for (int i = 0; i < GVMI_OPTION_COUNT; i++) {
        /* Not in a setuid program: its caller must not choose what is loaded into it. */
        const char *value = secure_getenv(settings[i].name);
        /* The environment may change under us. */
        char *copy = value != NULL ? strdup(value) : NULL;

        if (copy != NULL) {
            settings[i].value = copy;
            settings[i].origin = "environment";
        }
    }
}

const char *gvmi_option_text(gvmi_option option)
{
    pthread_once(&once, read_environment);
    return settings[option].value;
}

gvm_status gvmi_option_bool(gvmi_option option, bool *out)
{
    const char *text = gvmi_option_text(option);

    if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
        return gvm_error_set(GVM_E_SETTING, "%s must be 0 or 1, not \"%s\"", settings[option].name,
                             GVMI_TEXT_NAME(text));
    *out = text[0] == '1';
    return GVM_OK;
}

gvm_status gvmi_option_size(gvmi_option option, uint64_t *out_bytes)
{
    const char *text = gvmi_option_text(option);

    if (!gvmi_size_parse(text, out_bytes))
        return gvm_error_set(GVM_E_SETTING, "%s must be a size such as 256MiB, not \"%s\"",
                             settings[option].name, GVMI_TEXT_NAME(text));
    return GVM_OK;
}

gvm_status gvm_setting_get_info(uint32_t index, gvm_setting_info *info)
{
    if (index >= GVMI_OPTION_COUNT)
        return gvm_error_set(GVM_E_INVALID, "no setting of index %u", (unsigned)index);
    pthread_once(&once, read_environment);
    if (!gvmi_struct_out(info, &settings[index], sizeof settings[index], sizeof settings[index]))
        return gvm_error_set(GVM_E_INVALID, "info is NULL or its struct_size is too small");
    return GVM_OK;
}
