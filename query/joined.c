/* The kernels' interpreter (kernels.c) with joins: the kernel query_join. It is another one, as rows of several
 * tables take registers that programs of one table would have to do without. */
#define GQUERY_JOINED 1
#include "query/kernels.c" /* NOLINT */
