/* gvmem - the command line tool: shows devices, shares a buffer between processes, and deals with
 * the keeper and with tables of PostgreSQL. */
#include <string.h>

#include "tools/tool.h"

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *text;
} commands[] = {
    {"info", tool_info, "show the driver, the devices and the settings"},
    {"share", tool_share, "fill a buffer and let other processes import and sum it"},
    {"keeper", tool_keeper, "start, stop and ask the keeper of shared objects"},
    {"map", tool_map, "draw which chunks of the keeper's objects lie where"},
    {"models", tool_models, "list the models that processes share"},
    {"table", tool_table, "show a PostgreSQL table in GPU memory by its token"},
    {"top", tool_top, "watch the keeper, its objects and its clients"},
};
#define COMMAND_COUNT (sizeof commands / sizeof commands[0])

static int print_help(void)
{
    puts("usage: gvmem COMMAND [OPTION...]\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        printf("  %-8s%s\n", commands[i].name, commands[i].text);
    puts("\ngvmem COMMAND --help lists its options, gvmem --version the version;\n"
         "gvmem info shows the environment variables that count.");
    return tool_flush(stdout, "standard output") ? TOOL_DONE : TOOL_FAILED;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    uint32_t version = gvm_version();

    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0)
        return print_help();
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        printf("gvmem %u.%u.%u\n", version / 10000, version / 100 % 100, version % 100);
        return tool_flush(stdout, "standard output") ? TOOL_DONE : TOOL_FAILED;
    }
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(name, commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    if (argc < 2)
        return tool_usage("", "a command is missing");
    return tool_usage("", "there is no command \"%s\"", name);
}
