// A program in C++ that runs a keeper and asks it: links libgvmem-keeper and libgvmem.
#include <cstdio>

#include <gvmem/gvmem.h>
#include <gvmem/keeper.h>

static bool failed(gvm_status status, const char *what)
{
    if (status != GVM_OK)
        std::printf("%s: %s\n", what, gvm_status_text(status));
    return status != GVM_OK;
}

int main()
{
    gvm_keeper_options options{};
    gvm_keeper *keeper;
    gvm_client *client;
    int socket;

    options.struct_size = sizeof options;
    if (failed(gvm_keeper_start(&options, &keeper), "gvm_keeper_start"))
        return 1;
    if (failed(gvm_keeper_open_socket(keeper, &socket), "gvm_keeper_open_socket") ||
        failed(gvm_client_adopt(socket, &client), "gvm_client_adopt"))
        return 1;
    gvm_client_close(client);
    gvm_keeper_stop(keeper);
    std::printf("gvmem %u\n", static_cast<unsigned>(gvm_version()));
    return 0;
}
