/* gvmem info: what is there, what it can do, and why the library behaves as it does. */
#include <getopt.h>
#include <gvmem/kernels.h>
#include <inttypes.h>
#include <string.h>

#include "base/size.h"
#include "tools/json.h"
#include "tools/tool.h"

static const char usage[] =
    "usage: gvmem info [--json]\n"
    "\n"
    "Shows the driver that is loaded and why that one, the devices and what they can do, every\n"
    "setting with its value and where that came from, and for which GPUs kernels are there.\n"
    "\n"
    "  -j, --json   as JSON\n"
    "  -h, --help   this text\n";

/* What is known of a device, or why it cannot be opened. */
typedef struct device_report {
    bool open;
    gvm_device_info info;
    char problem[400];
} device_report;

static void read_device(int32_t ordinal, device_report *report)
{
    gvm_device *device;

    report->info.struct_size = sizeof report->info;
    report->open = false;
    if (gvm_device_open(ordinal, &device) != GVM_OK) {
        tool_failure_text(report->problem, sizeof report->problem);
        return;
    }
    if (gvm_device_get_info(device, &report->info) == GVM_OK)
        report->open = true;
    else
        tool_failure_text(report->problem, sizeof report->problem);
    gvm_device_close(device);
}

static const struct capability {
    const char *key, *text;
    size_t offset;
} capabilities[] = {
    {"vmm", "virtual memory management", offsetof(gvm_device_info, vmm)},
    {"share_fd", "sharing by file descriptor", offsetof(gvm_device_info, share_fd)},
    {"host_tier", "host tier", offsetof(gvm_device_info, host_tier)},
    {"share_ipc", "CUDA IPC", offsetof(gvm_device_info, share_ipc)},
    {"fabric", "fabric handles", offsetof(gvm_device_info, fabric)},
};
#define CAPABILITY_COUNT (sizeof capabilities / sizeof capabilities[0])

static bool has_capability(const gvm_device_info *info, size_t i)
{
    return *((const uint8_t *)info + capabilities[i].offset) != 0;
}

/* ---- text */

static void print_capabilities(const gvm_device_info *info, bool wanted, const char *title)
{
    const char *separator = title;

    for (size_t i = 0; i < CAPABILITY_COUNT; i++) {
        if (has_capability(info, i) != wanted)
            continue;
        printf("%s%s", separator, capabilities[i].text);
        separator = ", ";
    }
    if (separator != title)
        putchar('\n');
}

static void print_device_report(int32_t ordinal, const device_report *report)
{
    const gvm_device_info *info = &report->info;
    char uuid[48], total[32], free_text[32], unit[32];

    if (!report->open) {
        printf("\ndevice %d     cannot be used: %s\n", (int)ordinal, report->problem);
        return;
    }
    printf("\ndevice %d     %s%s\n", (int)ordinal, info->name, info->software ? " (software)" : "");
    printf("  uuid       %s\n", tool_uuid_text(info->uuid, uuid));
    printf("  bus        %s\n", info->pci_bus_id);
    printf("  compute    capability %d.%d, %d SMs, warps of %d, blocks of up to %d, %d copy engines\n",
           info->compute_major, info->compute_minor, info->sm_count, info->warp_size,
           info->block_threads_max, info->copy_engines);
    printf("  memory     %s, %s free\n", gvmi_size_text(info->total_bytes, total),
           gvmi_size_text(info->free_bytes, free_text));
    if (info->granularity_bytes > 0)
        printf("  chunks     from %s\n", gvmi_size_text(info->granularity_bytes, unit));
    print_capabilities(info, true, "  can        ");
    print_capabilities(info, false, "  cannot     ");
}

static void print_settings(void)
{
    gvm_setting_info setting = {.struct_size = sizeof setting};

    puts("\nsettings");
    for (uint32_t i = 0; gvm_setting_get_info(i, &setting) == GVM_OK; i++)
        printf("  %s=%s (%s)\n      %s\n", setting.name, setting.value, setting.origin, setting.text);
}

static void print_kernels(void)
{
    const char *architectures = gvm_kernel_architectures();

    printf("kernels for real GPUs: %s\n", architectures[0] != '\0' ? architectures : "none");
}

static int print_text(void)
{
    gvm_driver_info driver = {.struct_size = sizeof driver};
    device_report report;
    int32_t count = 0;
    int code = TOOL_DONE;

    print_kernels();
    if (gvm_driver_get_info(&driver) != GVM_OK || gvm_device_count(&count) != GVM_OK) {
        code = tool_fail("there is nothing to run on");
    } else {
        printf("driver       %s, CUDA %d.%d (%s)\n", driver.path, driver.version / 1000,
               driver.version % 1000 / 10, driver.reason);
        for (int32_t i = 0; i < count; i++) {
            read_device(i, &report);
            print_device_report(i, &report);
            if (!report.open)
                code = TOOL_FAILED;
        }
    }
    print_settings();
    return code;
}

/* ---- JSON */

static void write_driver(json *j, const gvm_driver_info *driver)
{
    char version[24];

    snprintf(version, sizeof version, "%d.%d", driver->version / 1000, driver->version % 1000 / 10);
    json_object(j, "driver");
    json_string(j, "path", driver->path);
    json_string(j, "cuda_version", version);
    json_bool(j, "software", driver->software);
    json_string(j, "reason", driver->reason);
    json_end(j);
}

static void write_device(json *j, int32_t ordinal, const device_report *report)
{
    const gvm_device_info *info = &report->info;
    char uuid[48], compute[24];

    json_object(j, NULL);
    json_integer(j, "ordinal", ordinal);
    if (!report->open) {
        json_string(j, "error", report->problem);
        json_end(j);
        return;
    }
    snprintf(compute, sizeof compute, "%d.%d", info->compute_major, info->compute_minor);
    json_string(j, "name", info->name);
    json_bool(j, "software", info->software);
    json_string(j, "uuid", tool_uuid_text(info->uuid, uuid));
    json_string(j, "pci_bus_id", info->pci_bus_id);
    json_string(j, "compute_capability", compute);
    json_integer(j, "sm_count", info->sm_count);
    json_integer(j, "warp_size", info->warp_size);
    json_integer(j, "block_threads_max", info->block_threads_max);
    json_integer(j, "copy_engines", info->copy_engines);
    json_unsigned(j, "total_bytes", info->total_bytes);
    json_unsigned(j, "free_bytes", info->free_bytes);
    json_unsigned(j, "granularity_bytes", info->granularity_bytes);
    json_object(j, "capabilities");
    for (size_t i = 0; i < CAPABILITY_COUNT; i++)
        json_bool(j, capabilities[i].key, has_capability(info, i));
    json_end(j);
    json_end(j);
}

static void write_kernels(json *j)
{
    const char *name = gvm_kernel_architectures();
    char one[16];

    json_array(j, "kernel_architectures");
    for (size_t length; (length = strcspn(name, " ")) > 0; name += length, name += *name == ' ') {
        snprintf(one, sizeof one, "%.*s", (int)length, name);
        json_string(j, NULL, one);
    }
    json_end(j);
}

static void write_settings(json *j)
{
    gvm_setting_info setting = {.struct_size = sizeof setting};

    json_array(j, "settings");
    for (uint32_t i = 0; gvm_setting_get_info(i, &setting) == GVM_OK; i++) {
        json_object(j, NULL);
        json_string(j, "name", setting.name);
        json_string(j, "value", setting.value);
        json_string(j, "default", setting.default_value);
        json_string(j, "origin", setting.origin);
        json_string(j, "text", setting.text);
        json_end(j);
    }
    json_end(j);
}

static int print_json(void)
{
    gvm_driver_info driver = {.struct_size = sizeof driver};
    device_report report;
    int32_t count = 0;
    int code = TOOL_DONE;
    char why[400];
    json j;

    json_start(&j, stdout);
    json_object(&j, NULL);
    if (gvm_driver_get_info(&driver) != GVM_OK || gvm_device_count(&count) != GVM_OK) {
        json_string(&j, "error", tool_failure_text(why, sizeof why));
        json_null(&j, "driver");
        code = tool_fail("there is nothing to run on");
    } else {
        write_driver(&j, &driver);
    }
    json_array(&j, "devices");
    for (int32_t i = 0; i < count; i++) {
        read_device(i, &report);
        write_device(&j, i, &report);
        if (!report.open)
            code = TOOL_FAILED;
    }
    json_end(&j);
    write_kernels(&j);
    write_settings(&j);
    json_end(&j);
    return code;
}

int tool_info(int argc, char **argv)
{
    static const struct option longs[] = {
        {"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {0}};
    bool as_json = false;
    int option, code;

    while ((option = getopt_long(argc, argv, ":jh", longs, NULL)) != -1) {
        if (option == 'j')
            as_json = true;
        else if (option == 'h')
            return tool_help(usage);
        else
            return tool_bad_option("info", option, argv);
    }
    if (optind < argc)
        return tool_usage("info", "\"%s\" is one argument too many", argv[optind]);
    code = as_json ? print_json() : print_text();
    return tool_flush(stdout, "standard output") ? code : TOOL_FAILED;
}
