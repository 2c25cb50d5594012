/* gvmem models: the models that a keeper has, with where they are and who uses them. */
#include <getopt.h>
#include <inttypes.h>

#include "tools/json.h"
#include "tools/keeper.h"
#include "tools/models.h"

static const char usage[] =
    "usage: gvmem models [OPTION...]\n"
    "\n"
    "Lists the models that processes share: objects that gvmem.models and gvmem.torch of the package\n"
    "for Python have published. DEVICE and HOST say where their bytes are, OPEN how many openings\n"
    "there are, and AWAKE how many leases: what is awake is not taken from the device.\n"
    "\n"
    "  -s, --socket PATH   of the keeper\n"
    "  -j, --json          as JSON\n"
    "  -h, --help          this text\n";

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const gvm_object_info *)a)->name, ((const gvm_object_info *)b)->name);
}

/* The models that have a name, by name, and how many. NULL, with a complaint: out of memory. */
static gvm_object_info *select_models(const snapshot_copy *s, size_t *count)
{
    gvm_object_info *list = calloc(s->keeper.objects + 1, sizeof *list);
    models_mark mark;

    *count = 0;
    if (list == NULL) {
        tool_error("out of memory");
        return NULL;
    }
    for (uint32_t i = 0; i < s->keeper.objects; i++)
        if (s->objects[i].name[0] != '\0' && models_read_mark(&s->objects[i], &mark))
            list[(*count)++] = s->objects[i];
    qsort(list, *count, sizeof *list, compare_names);
    return list;
}

static void print_text(const gvm_object_info *list, size_t count)
{
    text_pen pen = keeper_pen();
    char size[16], device[16], host[16];
    models_mark mark;

    if (count > 0) {
        text_put(&pen, "DEV  BYTES DEVICE   HOST TENSORS  OPEN AWAKE VERSION  MODEL");
        text_end(&pen);
    }
    for (size_t i = 0; i < count; i++) {
        const gvm_object_info *o = &list[i];

        (void)models_read_mark(o, &mark);
        text_print(&pen, "%3d %6s %6s %6s %7" PRIu64 " %5u %5u %-8s %s", (int)o->device,
                   text_short((double)o->size_bytes, true, size),
                   text_short((double)o->device_bytes, true, device),
                   text_short((double)o->host_bytes, true, host), mark.tensors, o->openings,
                   o->read_leases, mark.version[0] != '\0' ? mark.version : "-", o->name);
        text_end(&pen);
    }
}

static void print_json(const gvm_object_info *list, size_t count)
{
    models_mark mark;
    json j;

    json_start(&j, stdout);
    json_array(&j, NULL);
    for (size_t i = 0; i < count; i++) {
        const gvm_object_info *o = &list[i];

        (void)models_read_mark(o, &mark);
        json_object(&j, NULL);
        json_string(&j, "name", o->name);
        json_string(&j, "version", mark.version);
        json_unsigned(&j, "tensors", mark.tensors);
        json_integer(&j, "device", o->device);
        json_unsigned(&j, "size_bytes", o->size_bytes);
        json_unsigned(&j, "device_bytes", o->device_bytes);
        json_unsigned(&j, "host_bytes", o->host_bytes);
        json_unsigned(&j, "openings", o->openings);
        json_unsigned(&j, "read_leases", o->read_leases);
        json_unsigned(&j, "owner_uid", o->owner_uid);
        json_unsigned(&j, "mode", o->mode);
        json_end(&j);
    }
    json_end(&j);
}

static int list_models(const char *socket, bool as_json)
{
    gvm_client *keeper = keeper_connect(socket);
    snapshot_copy *snapshot = NULL;
    gvm_object_info *list;
    bool good;
    size_t count;

    if (keeper == NULL)
        return TOOL_FAILED;
    if (keeper_ask(&keeper, false, &snapshot) != GVM_OK) {
        tool_fail("cannot ask the keeper");
        gvm_client_close(keeper);
        return TOOL_FAILED;
    }
    gvm_client_close(keeper);
    list = select_models(snapshot, &count);
    if (list != NULL && as_json)
        print_json(list, count);
    else if (list != NULL)
        print_text(list, count);
    good = list != NULL;
    snapshot_free(snapshot);
    free(list);
    return good && tool_flush(stdout, "standard output") ? TOOL_DONE : TOOL_FAILED;
}

int tool_models(int argc, char **argv)
{
    static const struct option longs[] = {{"socket", required_argument, NULL, 's'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    const char *socket = NULL;
    bool as_json = false;
    int option;

    while ((option = getopt_long(argc, argv, ":s:jh", longs, NULL)) != -1) {
        switch (option) {
        case 's': socket = optarg; break;
        case 'j': as_json = true; break;
        case 'h': return tool_help(usage);
        default: return tool_bad_option("models", option, argv);
        }
    }
    if (optind < argc)
        return tool_usage("models", "\"%s\" is one argument too many", argv[optind]);
    return list_models(socket, as_json);
}
