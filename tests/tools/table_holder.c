/* A table for the tests of gvmem table and gvmem-bench table: serves that of table_fixture.c, prints its
 * token, and keeps it until standard input ends. Also a keeper in a program that is not gvmem-keeper. */
#include <stdio.h>

#include "tests/fault/fault.h"
#include "tests/lib/child.h"

int main(void)
{
    char token[GVM_TABLE_TOKEN_BYTES_MAX];
    gvm_error error;
    int code = 1;

    if (table_serve(token)) {
        code = child_hold(token) ? 0 : 1;
    } else {
        gvm_error_last(&error);
        fprintf(stderr, "table_holder: cannot serve a table: %s\n", error.text);
    }
    table_serve_end();
    return code;
}
