/* Graphs of files: METIS, where each line has the neighbours of a vertex, and Matrix Market, where each has an entry of a sparse matrix.
 * Edges have no direction: an entry of a matrix is there both ways. Weights and values are passed over.
 */
#include "bench/region/graphs.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define VERTICES_MAX (1ull << 31)

typedef struct graph_file {
    const char *path;
    FILE *file;
    char *line;
    size_t line_size;
    uint64_t line_number;
    uint64_t vertices;
    uint32_t (*edges)[2]; /* from, to */
    uint64_t edge_count, edges_max;
    const char *wrong; /* NULL: nothing so far */
} graph_file;

/* ---- reading */

static bool fail_file(graph_file *f, const char *wrong)
{
    if (f->wrong == NULL)
        f->wrong = wrong;
    return false;
}

/* Comments are passed over. */
static bool next_line(graph_file *f)
{
    do {
        f->line_number++;
        if (getline(&f->line, &f->line_size, f->file) < 0)
            return fail_file(f, ferror(f->file) ? strerror(errno) : "the file ends too early");
    } while (f->line[0] == '%');
    return true;
}

/* A whole number that stands at *at. */
static bool next_number(graph_file *f, char **at, uint64_t max, uint64_t *out)
{
    char *end;

    while (isspace((unsigned char)**at))
        ++*at;
    if (!isdigit((unsigned char)**at))
        return fail_file(f, "a number is missing");
    errno = 0;
    *out = strtoull(*at, &end, 10);
    if (errno != 0 || *out > max)
        return fail_file(f, "a number is too large");
    *at = end;
    return true;
}

static bool at_end(char **at)
{
    while (isspace((unsigned char)**at))
        ++*at;
    return **at == '\0';
}

/* Vertices of files are counted from 1 on. */
static bool add_edge(graph_file *f, uint64_t from, uint64_t to)
{
    if (from == 0 || to == 0)
        return fail_file(f, "vertices are counted from 1 on");
    if (f->edge_count == f->edges_max) {
        const uint64_t max = f->edges_max * 2 + 1024;
        void *edges = realloc(f->edges, max * sizeof *f->edges);

        if (edges == NULL)
            return fail_file(f, "out of memory");
        f->edges = edges;
        f->edges_max = max;
    }
    f->edges[f->edge_count][0] = (uint32_t)(from - 1);
    f->edges[f->edge_count++][1] = (uint32_t)(to - 1);
    return true;
}

/* ---- METIS: "vertices edges [format [weights of a vertex]]" */

/* The format's digits say whether vertices have sizes and weights, and edges weights. */
static bool read_metis_line(graph_file *f, uint64_t vertex, uint64_t format, uint64_t weights)
{
    char *at = f->line;
    uint64_t number;

    weights = format / 10 % 10 != 0 ? weights : 0;
    for (weights += format / 100 % 10 != 0; weights > 0; weights--)
        if (!next_number(f, &at, UINT64_MAX, &number))
            return false;
    while (!at_end(&at)) {
        if (!next_number(f, &at, f->vertices, &number) || !add_edge(f, vertex, number))
            return false;
        if (format % 10 != 0 && !next_number(f, &at, UINT64_MAX, &number))
            return false;
    }
    return true;
}

static bool read_metis(graph_file *f)
{
    char *at = f->line;
    uint64_t edges, format = 0, weights = 1;

    if (!next_number(f, &at, VERTICES_MAX, &f->vertices) ||
        !next_number(f, &at, UINT64_MAX / 2, &edges) ||
        (!at_end(&at) && !next_number(f, &at, 111, &format)) ||
        (!at_end(&at) && !next_number(f, &at, 1024, &weights)))
        return false;
    for (uint64_t v = 1; v <= f->vertices; v++)
        if (!next_line(f) || !read_metis_line(f, v, format, weights))
            return false;
    return f->edge_count == 2 * edges ||
           fail_file(f, "there are not as many edges as its first line says");
}

/* ---- Matrix Market: "rows columns entries" */

static bool read_matrix(graph_file *f)
{
    uint64_t columns, entries, row, column;
    char *at;

    if (strstr(f->line, "coordinate") == NULL)
        return fail_file(f, "only matrices of the kind \"coordinate\" are read");
    if (!next_line(f))
        return false;
    at = f->line;
    if (!next_number(f, &at, VERTICES_MAX, &f->vertices) ||
        !next_number(f, &at, VERTICES_MAX, &columns) || !next_number(f, &at, UINT64_MAX, &entries))
        return false;
    f->vertices = columns > f->vertices ? columns : f->vertices;
    for (uint64_t i = 0; i < entries; i++) {
        if (!next_line(f))
            return false;
        at = f->line;
        if (!next_number(f, &at, f->vertices, &row) || !next_number(f, &at, f->vertices, &column) ||
            !add_edge(f, row, column) || !add_edge(f, column, row))
            return false;
    }
    return true;
}

static bool read_file(graph_file *f)
{
    static const char banner[] = "%%MatrixMarket matrix";

    f->line_number = 1;
    if (getline(&f->line, &f->line_size, f->file) < 0)
        return fail_file(f, "it is empty");
    if (strncmp(f->line, banner, sizeof banner - 1) == 0)
        return read_matrix(f);
    return (f->line[0] != '%' || next_line(f)) && read_metis(f);
}

/* ---- the graph */

static bool make_lists(region_bench *r, region_graph *g, const graph_file *f)
{
    uint64_t *offsets = calloc(f->vertices + 3, sizeof *offsets);
    uint32_t *edges = malloc(f->edge_count * sizeof *edges + 1);
    const char *slash = strrchr(f->path, '/');
    bool good = offsets != NULL && edges != NULL;

    for (uint64_t i = 0; good && i < f->edge_count; i++) /* offsets[v + 2]: how many v has */
        offsets[f->edges[i][0] + 2ull]++;
    for (uint64_t v = 2; good && v <= f->vertices; v++)
        offsets[v] += offsets[v - 1];
    for (uint64_t i = 0; good && i < f->edge_count; i++) /* offsets[v + 1]: where the next of v lies */
        edges[offsets[f->edges[i][0] + 1ull]++] = f->edges[i][1];
    good = good && graph_adopt(r, g, bench_text(r->b, "%s", slash != NULL ? slash + 1 : f->path),
                               (uint32_t)f->vertices, offsets, edges);
    free(offsets);
    free(edges);
    return good || region_failed(r, "making a graph of a file");
}

bool graph_read(region_bench *r, region_graph *g, const char *path)
{
    graph_file f = {.path = path, .file = fopen(path, "re")};
    bool good;

    if (f.file == NULL) {
        bench_note(r->b, "cannot read %s: %s", path, strerror(errno));
        r->b->code = TOOL_FAILED;
        return false;
    }
    good = read_file(&f) && (f.edge_count > 0 || fail_file(&f, "it has no edges"));
    if (!good) {
        bench_note(r->b, "cannot read %s, line %llu: %s", path, (unsigned long long)f.line_number,
                   f.wrong);
        r->b->code = TOOL_FAILED;
    }
    fclose(f.file);
    good = good && make_lists(r, g, &f);
    free(f.line);
    free(f.edges);
    return good;
}
