/* The public functions of gvmem/kernels.h. */
#include <gvmem/kernels.h>

#include <endian.h>
#include <string.h>

#include "base/address.h"
#include "base/cancel.h"
#include "base/error.h"
#include "kernels/basic.h"
#include "kernels/kernels.h"

/* A range that a kernel can walk: of aligned 8-byte words, not running past the end of the address
 * space. */
static gvm_status check_range(uint64_t address, uint64_t len_bytes)
{
    if (address == 0 || address % 8 != 0)
        return gvm_error_set(GVM_E_INVALID, "address 0x%llx is NULL or not a multiple of 8",
                             (unsigned long long)address);
    if (len_bytes > UINT64_MAX - address)
        return gvm_error_set(GVM_E_INVALID,
                             "0x%llx bytes from address 0x%llx on pass the end of the address space",
                             (unsigned long long)len_bytes, (unsigned long long)address);
    return GVM_OK;
}

static gvm_status check_array(uint64_t address, uint64_t count)
{
    return check_range(address, count > UINT64_MAX / 8 ? UINT64_MAX : count * 8);
}

/* Blocks that have a tile to work on. */
static uint64_t blocks_for(uint64_t len_bytes)
{
    return len_bytes / (GVMI_TILE_WORDS * 8) + 1;
}

/* Holds the device and makes its context current; leave_kernel_device() undoes both. */
static gvm_status enter_kernel_device(gvm_device *handle, gvm_device **out)
{
    gvm_status status = gvmi_device_hold(handle, out);

    if (status != GVM_OK)
        return status;
    status = gvmi_device_enter(*out);
    if (status != GVM_OK)
        gvmi_device_release(*out);
    return status;
}

static void leave_kernel_device(gvm_device *device)
{
    gvmi_device_leave();
    gvmi_device_release(device);
}

gvm_status gvm_kernel_fill_random_f64(gvm_device *handle, void *pointer, uint64_t count,
                                      uint64_t first_index, uint64_t seed, gvm_stream stream)
{
    GVMI_UNCANCELLED;
    const uint64_t address = gvmi_address(pointer);
    const gvmi_fill_params params = {address, count, first_index, seed};
    gvm_device *device;
    gvm_status status = check_array(address, count);

    if (status == GVM_OK)
        status = enter_kernel_device(handle, &device);
    if (status != GVM_OK)
        return status;
    if (count > 0)
        status = gvmi_kernel_launch(device, GVMI_KERNEL_fill_random_f64, &params,
                                    blocks_for(count * 8), stream);
    leave_kernel_device(device);
    return status;
}

gvm_status gvm_kernel_sum_f64(gvm_device *handle, const void *pointer, uint64_t count,
                              gvm_stream stream, double *sum)
{
    GVMI_UNCANCELLED;
    const uint64_t address = gvmi_address(pointer);
    gvmi_sum_params params = {address, count, 0};
    gvmi_result result;
    gvm_device *device;
    uint64_t word;
    gvm_status status = check_array(address, count);

    if (status == GVM_OK && sum == NULL)
        status = gvm_error_set(GVM_E_INVALID, "sum is NULL");
    if (status == GVM_OK)
        status = enter_kernel_device(handle, &device);
    if (status != GVM_OK)
        return status;
    status = gvmi_result_begin(device, 0, stream, &result);
    if (status == GVM_OK) {
        params.result = result.words.device;
        status = gvmi_kernel_launch(device, GVMI_KERNEL_sum_f64, &params, blocks_for(count * 8),
                                    stream);
        status = gvmi_result_end(device, &result, status, &word);
    }
    if (status == GVM_OK)
        memcpy(sum, &word, sizeof *sum);
    leave_kernel_device(device);
    return status;
}

gvm_status gvm_kernel_checksum(gvm_device *handle, const void *pointer, uint64_t len_bytes,
                               gvm_stream stream, uint64_t *checksum)
{
    GVMI_UNCANCELLED;
    const uint64_t address = gvmi_address(pointer);
    gvmi_checksum_params params = {address, len_bytes, 0};
    gvmi_result result;
    gvm_device *device;
    uint64_t word;
    gvm_status status = check_range(address, len_bytes);

    if (status == GVM_OK && checksum == NULL)
        status = gvm_error_set(GVM_E_INVALID, "checksum is NULL");
    if (status == GVM_OK)
        status = enter_kernel_device(handle, &device);
    if (status != GVM_OK)
        return status;
    status = gvmi_result_begin(device, 0, stream, &result);
    if (status == GVM_OK) {
        params.result = result.words.device;
        status = gvmi_kernel_launch(device, GVMI_KERNEL_checksum, &params, blocks_for(len_bytes),
                                    stream);
        status = gvmi_result_end(device, &result, status, &word);
    }
    if (status == GVM_OK)
        *checksum = word + gvmi_splitmix64(len_bytes);
    leave_kernel_device(device);
    return status;
}

uint64_t gvm_kernel_checksum_host(const void *data, uint64_t len_bytes)
{
    const unsigned char *bytes = data;
    uint64_t sum = gvmi_splitmix64(len_bytes), index, word;

    for (index = 0; index < len_bytes / 8; index++) {
        memcpy(&word, bytes + index * 8, sizeof word);
        sum += gvmi_splitmix64(le64toh(word) ^ gvmi_splitmix64(index));
    }
    if (len_bytes % 8 != 0) {
        word = 0;
        memcpy(&word, bytes + index * 8, len_bytes % 8);
        sum += gvmi_splitmix64(le64toh(word) ^ gvmi_splitmix64(index));
    }
    return sum;
}

gvm_status gvm_kernel_compare(gvm_device *handle, const void *a, const void *b, uint64_t len_bytes,
                              gvm_stream stream, uint64_t *first_difference)
{
    GVMI_UNCANCELLED;
    gvmi_compare_params params = {gvmi_address(a), gvmi_address(b), len_bytes, 0};
    gvmi_result result;
    gvm_device *device;
    uint64_t word;
    gvm_status status = check_range(params.address_a, len_bytes);

    if (status == GVM_OK)
        status = check_range(params.address_b, len_bytes);
    if (status == GVM_OK && first_difference == NULL)
        status = gvm_error_set(GVM_E_INVALID, "first_difference is NULL");
    if (status == GVM_OK)
        status = enter_kernel_device(handle, &device);
    if (status != GVM_OK)
        return status;
    status = gvmi_result_begin(device, 0xff, stream, &result);
    if (status == GVM_OK) {
        params.result = result.words.device;
        status = gvmi_kernel_launch(device, GVMI_KERNEL_compare, &params, blocks_for(len_bytes),
                                    stream);
        status = gvmi_result_end(device, &result, status, &word);
    }
    if (status == GVM_OK)
        *first_difference = word;
    leave_kernel_device(device);
    return status;
}
