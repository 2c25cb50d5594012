/* gvmem map: which chunks of a keeper's objects lie where. */
#include <getopt.h>
#include <stdlib.h>

#include "tools/keeper.h"
#include "tools/map_view.h"
#include "tools/top_terminal.h"

static const char usage[] = "usage: gvmem map [OPTION...] [PREFIX]\n"
                            "\n"
                            "Draws where the chunks of the keeper's objects lie whose names begin with PREFIX.\n"
                            "\n"
                            "  -s, --socket PATH       of the keeper\n"
                            "      --svg               a picture, to standard output\n"
                            "  -j, --json              runs of chunks\n"
                            "  -h, --help              this text\n";

typedef enum map_form { FORM_TEXT, FORM_SVG, FORM_JSON } map_form;

static bool print_map(const snapshot_copy *snapshot, map_form form, const char *prefix)
{
    text_pen pen = keeper_pen();
    unsigned lines;

    if (form == FORM_SVG)
        return map_svg(stdout, snapshot, prefix);
    if (form == FORM_JSON)
        return map_json(stdout, snapshot, prefix);
    if (terminal_there())
        terminal_size(&pen.width, &lines);
    pen.color = terminal_there() && getenv("NO_COLOR") == NULL; /* see no-color.org */
    return map_text(&pen, snapshot, prefix);
}

static int run_map(const char *socket, map_form form, const char *prefix)
{
    gvm_client *keeper = keeper_connect(socket);
    snapshot_copy *snapshot = NULL;
    bool good;

    if (keeper == NULL)
        return TOOL_FAILED;
    if (keeper_ask(&keeper, true, &snapshot) != GVM_OK) {
        tool_fail("cannot ask the keeper");
        gvm_client_close(keeper);
        return TOOL_FAILED;
    }
    gvm_client_close(keeper);
    good = print_map(snapshot, form, prefix);
    snapshot_free(snapshot);
    return tool_flush(stdout, "standard output") && good ? TOOL_DONE : TOOL_FAILED;
}

int tool_map(int argc, char **argv)
{
    static const struct option longs[] = {{"socket", required_argument, NULL, 's'},
                                          {"svg", no_argument, NULL, '1'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    const char *socket = NULL;
    map_form form = FORM_TEXT;
    int option;

    while ((option = getopt_long(argc, argv, ":s:jh", longs, NULL)) != -1) {
        switch (option) {
        case 'h': return tool_help(usage);
        case 's': socket = optarg; break;
        case '1':
        case 'j':
            if (form != FORM_TEXT)
                return tool_usage("map", "--svg and --json exclude each other");
            form = option == '1' ? FORM_SVG : FORM_JSON;
            break;
        default: return tool_bad_option("map", option, argv);
        }
    }
    if (argc - optind > 1)
        return tool_usage("map", "\"%s\" is one argument too many", argv[optind + 1]);
    return run_map(socket, form, optind < argc ? argv[optind] : "");
}
