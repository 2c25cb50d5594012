/* The keeper's table of lease transitions for the model: prints table.pml, or with --rows one
 * transition a line.
 *
 * What is printed is what gvmi_keep_step() says, which the machine calls for every change, for all
 * pairs of a state and an event; GVMI_LEASE_TRANSITIONS gives their names. It fails if the two
 * differ. */
#include <stdio.h>
#include <string.h>

#include "keeper/machine/state.h"

typedef struct row {
    int from, event, to;
    const char *from_name, *event_name, *to_name;
} row;

#define ROW(from, event, to) {KEEP_##from, KEEP_##event, KEEP_##to, #from, #event, #to},
static const row rows[] = {GVMI_LEASE_TRANSITIONS(ROW)};
#undef ROW

#define ROW_COUNT (sizeof rows / sizeof rows[0])
#define STATE_COUNT (KEEP_FROZEN + 1)
#define EVENT_COUNT (KEEP_GONE + 1)

static const char *state_names[STATE_COUNT], *event_names[EVENT_COUNT];

static bool learn_names(void)
{
    bool all = true;

    for (size_t i = 0; i < ROW_COUNT; i++) {
        state_names[rows[i].from] = rows[i].from_name;
        state_names[rows[i].to] = rows[i].to_name;
        event_names[rows[i].event] = rows[i].event_name;
    }
    for (size_t i = 0; i < STATE_COUNT; i++)
        all = all && state_names[i] != NULL;
    for (size_t i = 0; i < EVENT_COUNT; i++)
        all = all && event_names[i] != NULL;
    return all;
}

static bool is_row(int from, int event, int to)
{
    for (size_t i = 0; i < ROW_COUNT; i++)
        if (rows[i].from == from && rows[i].event == event && rows[i].to == to)
            return true;
    return false;
}

/* Does the machine's function say what the table says, no less and no more? */
static bool agrees(void)
{
    size_t known = 0;

    for (int from = 0; from < STATE_COUNT; from++)
        for (int event = 0; event < EVENT_COUNT; event++) {
            keep_lease_state to;

            if (!gvmi_keep_step((keep_lease_state)from, (keep_lease_event)event, &to))
                continue;
            known++;
            if (!is_row(from, event, (int)to))
                return false;
        }
    return known == ROW_COUNT;
}

static void print_rows(void)
{
    for (size_t i = 0; i < ROW_COUNT; i++)
        printf("%d %d %d %s %s %s\n", rows[i].from, rows[i].event, rows[i].to, rows[i].from_name,
               rows[i].event_name, rows[i].to_name);
}

_Static_assert(STATE_COUNT <= 4 && EVENT_COUNT <= 16, "numbers of table_taken()");

/* The C part has the verifier name each transition when it takes it first. */
static void print_promela(void)
{
    puts("/* Made by table.c from GVMI_LEASE_TRANSITIONS (keeper/machine/state.h). */");
    for (int i = 0; i < STATE_COUNT; i++)
        printf("#define %s %d\n", state_names[i], i);
    for (int i = 0; i < EVENT_COUNT; i++)
        printf("#define %s %d\n", event_names[i], i);
    puts("#define IN_TABLE(from, event, to) (false \\");
    for (size_t i = 0; i < ROW_COUNT; i++)
        printf("    || ((from) == %s && (event) == %s && (to) == %s) \\\n", rows[i].from_name,
               rows[i].event_name, rows[i].to_name);
    puts("    )\n"
         "c_decl {\n"
         "    static void table_taken(int from, int event, int to)\n"
         "    {\n"
         "        static char seen[4 * 16 * 4];\n"
         "        const int row = from * 64 + event * 4 + to;\n"
         "        if (!seen[row])\n"
         "            printf(\"row %d %d %d\\n\", from, event, to);\n"
         "        seen[row] = 1;\n"
         "    }\n"
         "};\n"
         "#define step(event, to) \\\n"
         "    assert(IN_TABLE(state, event, to) || not_in_table); \\\n"
         "    c_code { table_taken(now.state, event, to); }; \\\n"
         "    state = to");
}

int main(int argc, char **argv)
{
    if (!learn_names() || !agrees()) {
        fprintf(stderr, "gvmi_keep_step() and GVMI_LEASE_TRANSITIONS differ, or a name is in no row\n");
        return 1;
    }
    if (argc == 2 && strcmp(argv[1], "--rows") == 0)
        print_rows();
    else
        print_promela();
    return 0;
}
