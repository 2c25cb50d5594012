/* gvmem keeper: the commands around a keeper. */
#include "tools/keeper.h"

#include <errno.h>
#include <getopt.h>
#include <langinfo.h>
#include <locale.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "tools/json.h"
#include "tools/keeper_fields.h"

static const char usage[] =
    "usage: gvmem keeper COMMAND [OPTION...]\n"
    "\n"
    "  start [OPTION...]       start gvmem-keeper in the background; the options are its own\n"
    "  stop                    end it\n"
    "  status                  what it has and does\n"
    "  ls [-l] [PREFIX]        the objects whose names begin so\n"
    "  stat NAME               everything about one object\n"
    "  evict NAME [SIZE]       move it, or so much of it, to host memory\n"
    "  drop NAME               take its name away; it goes when nobody has it open\n"
    "  trim [DEVICE] [KEEP]    give the keeper's free device memory, but KEEP, to other programs\n"
    "  quota [USER]            users, what their objects may commit and have committed\n"
    "  quota USER SIZE|none    limit what a user's objects may commit; by name or number\n"
    "\n"
    "  -s, --socket PATH       of the keeper\n"
    "  -j, --json              as JSON\n"
    "  -p, --prometheus        status: metrics in the text format of Prometheus\n"
    "  -l, --long              ls: with figures\n"
    "  -t, --timeout SECONDS   stop: how long to wait (30)\n"
    "  -f, --force             stop: also if the keeper is part of another program\n"
    "  -h, --help              this text\n";

text_pen keeper_pen(void)
{
    text_pen pen = {.out = stdout, .width = TEXT_UNLIMITED, .lines_max = TEXT_UNLIMITED};

    setlocale(LC_CTYPE, "");
    pen.utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    return pen;
}

/* A snapshot, or NULL with a complaint. */
static snapshot_copy *take_snapshot(gvm_client **keeper)
{
    snapshot_copy *snapshot = NULL;

    if (keeper_ask(keeper, false, &snapshot) == GVM_OK)
        return snapshot;
    tool_fail("cannot ask the keeper");
    return NULL;
}

/* {"name": bytes}, or the size and what happened to it. */
static void print_bytes(const keeper_options *o, const char *name, uint64_t bytes, const char *text)
{
    char size[32];
    json j;

    if (!o->json) {
        printf("%s %s\n", gvmi_size_text(bytes, size), text);
        return;
    }
    json_start(&j, stdout);
    json_object(&j, NULL);
    json_unsigned(&j, name, bytes);
    json_end(&j);
}

/* ---- the commands; args are count of them, as many as the table allows */

static int run_status(gvm_client **keeper, const keeper_options *o, char **args, int count)
{
    snapshot_copy *snapshot = take_snapshot(keeper);
    text_pen pen = keeper_pen();

    (void)args, (void)count;
    if (o->prometheus)
        keeper_metrics(stdout, snapshot);
    if (snapshot == NULL)
        return TOOL_FAILED;
    if (o->json)
        keeper_json(stdout, snapshot);
    else if (!o->prometheus)
        keeper_text_status(&pen, snapshot);
    snapshot_free(snapshot);
    return TOOL_DONE;
}

static int run_ls(gvm_client **keeper, const keeper_options *o, char **args, int count)
{
    snapshot_copy *snapshot = take_snapshot(keeper);
    const char *prefix = count > 0 ? args[0] : "";
    text_pen pen = keeper_pen();
    bool good;

    if (snapshot == NULL)
        return TOOL_FAILED;
    good = o->json ? keeper_json_list(stdout, snapshot, prefix)
                   : keeper_text_list(&pen, snapshot, prefix, o->detailed);
    snapshot_free(snapshot);
    return good ? TOOL_DONE : TOOL_FAILED;
}

static int run_stat(gvm_client **keeper, const keeper_options *o, char **args, int count)
{
    snapshot_copy *snapshot = take_snapshot(keeper);
    const gvm_object_info *object;
    text_pen pen = keeper_pen();
    int code = TOOL_DONE;
    json j;

    (void)count;
    if (snapshot == NULL)
        return TOOL_FAILED;
    object = keeper_find(snapshot, args[0]);
    if (object == NULL) {
        code = tool_error("there is no object %s, or you may not read it", args[0]);
    } else if (o->json) {
        json_start(&j, stdout);
        json_object(&j, NULL);
        keeper_json_fields(&j, &keeper_of_object, object);
        json_end(&j);
    } else {
        keeper_text_object(&pen, object);
    }
    snapshot_free(snapshot);
    return code;
}

static int run_evict(gvm_client **keeper, const keeper_options *o, char **args, int count)
{
    uint64_t wanted = GVM_BYTES_UNLIMITED, moved = 0;

    if (count > 1 && !tool_parse_size("keeper", "evict", args[1], 1, &wanted))
        return TOOL_USAGE;
    if (gvm_client_evict(*keeper, args[0], wanted, &moved) != GVM_OK)
        return tool_fail("cannot evict %s", args[0]);
    print_bytes(o, "evicted_bytes", moved, "moved to host memory");
    return TOOL_DONE;
}

static int run_drop(gvm_client **keeper, const keeper_options *o, char **args, int count)
{
    (void)o, (void)count;
    if (gvm_object_drop(*keeper, args[0]) != GVM_OK)
        return tool_fail("cannot drop %s", args[0]);
    return TOOL_DONE;
}

static int trim_all(gvm_client **keeper, uint64_t *freed_bytes)
{
    snapshot_copy *snapshot = take_snapshot(keeper);
    int code = TOOL_DONE;

    if (snapshot == NULL)
        return TOOL_FAILED;
    for (uint32_t i = 0; i < snapshot->keeper.devices && code == TOOL_DONE; i++) {
        int32_t ordinal = snapshot->devices[i].ordinal;
        uint64_t freed = 0;

        if (gvm_client_trim(*keeper, ordinal, 0, &freed) != GVM_OK)
            code = tool_fail("cannot trim device %d", (int)ordinal);
        *freed_bytes += freed;
    }
    snapshot_free(snapshot);
    return code;
}

static int run_trim(gvm_client **keeper, const keeper_options *o, char **args, int count)
{
    uint64_t keep = 0, freed = 0;
    int code = TOOL_DONE, device;

    if (count > 0 && !tool_parse_number("keeper", "trim", args[0], 0, 1000, &device))
        return TOOL_USAGE;
    if (count > 1 && !tool_parse_size("keeper", "trim", args[1], 0, &keep))
        return TOOL_USAGE;
    if (count == 0)
        code = trim_all(keeper, &freed);
    else if (gvm_client_trim(*keeper, device, keep, &freed) != GVM_OK)
        code = tool_fail("cannot trim device %d", device);
    if (code == TOOL_DONE)
        print_bytes(o, "freed_bytes", freed, "given back");
    return code;
}

/* A number or a name. */
static bool parse_user(const char *text, uint32_t *uid)
{
    const struct passwd *user = getpwnam(text);
    unsigned long value;
    char *end;

    if (user != NULL) {
        *uid = user->pw_uid;
        return true;
    }
    errno = 0;
    value = strtoul(text, &end, 10);
    /* (uid_t)-1 stands for no user in system calls */
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value >= UINT32_MAX)
        return false;
    *uid = (uint32_t)value;
    return true;
}

static void print_quota(const gvm_user_info *user)
{
    const struct passwd *known = getpwuid(user->uid);
    char name[32], quota[32] = "none", committed[32];

    snprintf(name, sizeof name, "%u", user->uid);
    if (user->quota_bytes != GVM_BYTES_UNLIMITED)
        gvmi_size_text(user->quota_bytes, quota);
    printf("%-16s %12s %12s\n", known != NULL ? known->pw_name : name, quota,
           gvmi_size_text(user->committed_bytes, committed));
}

/* uid: NULL for all that the caller may see. */
static int print_quotas(gvm_client *keeper, const uint32_t *uid)
{
    gvm_keeper_info info = {.struct_size = sizeof info};
    gvm_user_info user = {.struct_size = sizeof user};
    gvm_snapshot *snapshot;
    gvm_status status = gvm_client_get_snapshot(keeper, &snapshot);
    bool found = uid == NULL;

    if (status != GVM_OK)
        return tool_fail("cannot get the users of the keeper");
    status = gvm_snapshot_get_keeper(snapshot, &info);
    printf("%-16s %12s %12s\n", "USER", "QUOTA", "COMMITTED");
    for (uint32_t i = 0; i < info.users && status == GVM_OK; i++) {
        status = gvm_snapshot_get_user(snapshot, i, &user);
        if (status != GVM_OK || (uid != NULL && user.uid != *uid))
            continue;
        print_quota(&user);
        found = true;
    }
    gvm_snapshot_destroy(snapshot);
    if (status != GVM_OK)
        return tool_fail("cannot read the users of the keeper");
    return found ? TOOL_DONE
                 : tool_error("user %u has no connection, objects or quota, or you may not see it",
                              *uid);
}

static int run_quota(gvm_client **keeper, const keeper_options *o, char **args, int count)
{
    uint64_t bytes = GVM_BYTES_UNLIMITED;
    uint32_t uid;

    (void)o;
    if (count > 0 && !parse_user(args[0], &uid))
        return tool_usage("keeper", "quota takes a user's number or name, not \"%s\"", args[0]);
    if (count < 2)
        return print_quotas(*keeper, count > 0 ? &uid : NULL);
    if (strcmp(args[1], "none") != 0 && !tool_parse_size("keeper", "quota", args[1], 0, &bytes))
        return TOOL_USAGE;
    if (gvm_client_set_quota(*keeper, uid, bytes) != GVM_OK)
        return tool_fail("cannot set the quota of %s", args[0]);
    return TOOL_DONE;
}

/* ---- options */

static const struct command {
    const char *name;
    int least, most; /* arguments */
    const char *options;
    int (*run)(gvm_client **keeper, const keeper_options *o, char **args, int count);
} commands[] = {
    {"stop", 0, 0, "stf", NULL},      {"status", 0, 0, "sjp", run_status},
    {"ls", 0, 1, "sjl", run_ls},      {"stat", 1, 1, "sj", run_stat},
    {"evict", 1, 2, "sj", run_evict}, {"drop", 1, 1, "s", run_drop},
    {"trim", 0, 2, "sj", run_trim},   {"quota", 0, 2, "s", run_quota},
};
#define COMMAND_COUNT (sizeof commands / sizeof commands[0])

static const struct option longs[] = {
    {"socket", required_argument, NULL, 's'},  {"json", no_argument, NULL, 'j'},
    {"prometheus", no_argument, NULL, 'p'},    {"long", no_argument, NULL, 'l'},
    {"timeout", required_argument, NULL, 't'}, {"force", no_argument, NULL, 'f'},
    {"help", no_argument, NULL, 'h'},          {0}};

static bool set_keeper_option(keeper_options *o, const struct command *command, int option)
{
    if (strchr(command->options, option) == NULL) {
        tool_usage("keeper", "%s has no option -%c", command->name, option);
        return false;
    }
    switch (option) {
    case 's': o->socket = optarg; return true;
    case 'j': o->json = true; return true;
    case 'p': o->prometheus = true; return true;
    case 'l': o->detailed = true; return true;
    case 'f': o->forced = true; return true;
    case 't': return tool_parse_number("keeper", "--timeout", optarg, 1, 86400, &o->timeout_s);
    default: return false;
    }
}

static int run_connected(const struct command *command, const keeper_options *o, char **args, int count)
{
    gvm_client *keeper = keeper_connect(o->socket);
    int code;

    if (keeper == NULL && o->prometheus)
        keeper_metrics(stdout, NULL);
    if (keeper == NULL)
        return TOOL_FAILED;
    code = command->run(&keeper, o, args, count);
    gvm_client_close(keeper);
    return code;
}

/* argv[0] is the command. */
static int run_command(const struct command *command, keeper_options *o, int argc, char **argv)
{
    int option, count, code;

    optind = 0; /* from the start again */
    while ((option = getopt_long(argc, argv, ":s:jplt:fh", longs, NULL)) != -1) {
        if (option == 'h')
            return tool_help(usage);
        if (option == '?' || option == ':')
            return tool_bad_option("keeper", option, argv);
        if (!set_keeper_option(o, command, option))
            return TOOL_USAGE;
    }
    count = argc - optind;
    if (count < command->least)
        return tool_usage("keeper", "%s needs more arguments", command->name);
    if (count > command->most)
        return tool_usage("keeper", "\"%s\" is one argument too many", argv[optind + command->most]);
    if (o->json && o->prometheus)
        return tool_usage("keeper", "--json and --prometheus exclude each other");
    code = command->run != NULL ? run_connected(command, o, argv + optind, count) : keeper_stop(o);
    return tool_flush(stdout, "standard output") ? code : TOOL_FAILED;
}

int tool_keeper(int argc, char **argv)
{
    keeper_options o = {.timeout_s = 30};
    const char *name;
    int option;

    /* Options before the command: the socket alone. */
    while ((option = getopt_long(argc, argv, "+:s:h", longs, NULL)) != -1) {
        if (option == 'h')
            return tool_help(usage);
        if (option == ':')
            return tool_bad_option("keeper", option, argv);
        if (option != 's')
            return tool_usage("keeper", "options other than --socket follow the command");
        o.socket = optarg;
    }
    if (optind == argc)
        return tool_usage("keeper", "a command is missing");
    name = argv[optind];
    if (strcmp(name, "start") == 0)
        return keeper_start(o.socket, argc - optind - 1, argv + optind + 1);
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(name, commands[i].name) == 0)
            return run_command(&commands[i], &o, argc - optind, argv + optind);
    return tool_usage("keeper", "there is no command \"%s\"", name);
}
