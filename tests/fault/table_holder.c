/* A table for the tests of gvmem table and gvmem-bench table: serves that of table_fixture.c, prints its
 * token, and keeps it until standard input ends. Also a keeper in a program that is not gvmem-keeper. */
#include <stdio.h>
#include <unistd.h>

#include "tests/fault/fault.h"

int main(void)
{
    char token[GVM_TABLE_TOKEN_BYTES_MAX], byte;
    gvm_error error;
    int code = 1;

    if (table_serve(token)) {
        code = puts(token) >= 0 && fflush(stdout) == 0 ? 0 : 1;
        while (code == 0 && read(STDIN_FILENO, &byte, 1) > 0)
            continue;
    } else {
        gvm_error_last(&error);
        fprintf(stderr, "table_holder: cannot serve a table: %s\n", error.text);
    }
    table_serve_end();
    return code;
}
