/* The machine that the software GPU pretends to be, from GVMEM_SOFTGPU.
 *
 *     devices=2,memory=4GiB,peers=16,sms=4,warp=32,threads=64,switches=0,host=8GiB,link=50GiB,gap_us=200,
 *     instance=name
 *
 * Every key may be left out. Sizes are whole numbers with an optional unit (K M G T, KiB MiB GiB
 * TiB; all binary). The first malformed item is kept as a sentence; the settings then stay at their
 * defaults, but cuInit refuses to start.
 */
#include <ctype.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "softgpu/soft.h"

#define TEXT_MAX 256
#define SMS_MAX 256
#define SMS_DEFAULT_MAX 16
#define MEMORY_DEFAULT_MAX (8ull << 30)
#define GAP_US_DEFAULT 200
#define GAP_US_MAX 1000000
#define WARP_MAX 32
#define WARPS_MAX 32 /* of a block: so many words of shared memory have code that goes by warps */
#define THREADS_MAX (WARP_MAX * WARPS_MAX)
#define THREADS_DEFAULT_MAX 64
#define SIZE_MAX_BYTES (1ull << 50) /* sums over 16 devices stay far from overflow */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static soft_config config;
static CUresult result;
static char text[TEXT_MAX];

/* ---- values */

static bool parse_number(const char **at, uint64_t *out)
{
    const char *p = *at;
    uint64_t value = 0;
    if (!isdigit((unsigned char)*p))
        return false;
    for (; isdigit((unsigned char)*p); p++) {
        uint64_t digit = (uint64_t)(*p - '0');
        if (value > (UINT64_MAX - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *at = p;
    *out = value;
    return true;
}

static bool parse_count(const char *value, uint64_t max, int *out)
{
    uint64_t n;
    if (!parse_number(&value, &n) || *value != '\0' || n < 1 || n > max)
        return false;
    *out = (int)n;
    return true;
}

static bool parse_size(const char *value, uint64_t *out)
{
    static const char units[] = "KMGT";
    uint64_t n;
    unsigned int shift = 0;
    if (!parse_number(&value, &n))
        return false;
    if (*value != '\0') {
        const char *unit = strchr(units, toupper((unsigned char)*value));
        if (!unit)
            return false;
        shift = 10 * (unsigned int)(unit - units + 1);
        value++;
        if (*value != '\0' && strcasecmp(value, "iB") != 0)
            return false;
    }
    if (n > SIZE_MAX_BYTES >> shift)
        return false;
    *out = n << shift;
    return true;
}

static bool parse_gap(const char *value)
{
    uint64_t us;
    if (!parse_number(&value, &us) || *value != '\0' || us > GAP_US_MAX)
        return false;
    config.gap_us = (uint32_t)us;
    return true;
}

static bool parse_switches(const char *value)
{
    return parse_number(&value, &config.switches) && *value == '\0';
}

/* The name goes into file and socket names that processes of other users meet, so it is kept to
 * characters without meaning there. */
static bool parse_instance(const char *value)
{
    size_t len = strlen(value);
    if (len == 0 || len >= sizeof config.instance)
        return false;
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)value[i]) && !strchr("._-", value[i]))
            return false;
    memcpy(config.instance, value, len + 1);
    return true;
}

static bool parse_memory(const char *value)
{
    uint64_t bytes;
    if (!parse_size(value, &bytes) || bytes < SOFT_GRANULARITY_BYTES)
        return false;
    config.memory_bytes = bytes & ~(SOFT_GRANULARITY_BYTES - 1);
    return true;
}

/* ---- items */

static void set_config_error(const char *item, const char *expected)
{
    snprintf(text, sizeof text, "GVMEM_SOFTGPU: '%.60s': expected %s", item, expected);
    result = CUDA_ERROR_INVALID_VALUE;
}

static void parse_item(const char *item)
{
    const char *value = strchr(item, '=');
    size_t key_len = value ? (size_t)(value++ - item) : strlen(item);
    bool fits = false;
    const char *expected =
        "devices=, memory=, peers=, sms=, warp=, threads=, switches=, host=, link=, gap_us= or instance=";

    if (value && key_len == 7 && memcmp(item, "devices", 7) == 0) {
        fits = parse_count(value, SOFT_DEVICES_MAX, &config.device_count);
        expected = "a number of devices from 1 to 16";
    } else if (value && key_len == 6 && memcmp(item, "memory", 6) == 0) {
        fits = parse_memory(value);
        expected = "a size from 2MiB to 1024TiB";
    } else if (value && key_len == 5 && memcmp(item, "peers", 5) == 0) {
        fits = parse_count(value, SOFT_DEVICES_MAX, &config.peers_group);
        expected = "a number of devices from 1 to 16";
    } else if (value && key_len == 3 && memcmp(item, "sms", 3) == 0) {
        fits = parse_count(value, SMS_MAX, &config.sm_count);
        expected = "a number of SMs from 1 to 256";
    } else if (value && key_len == 4 && memcmp(item, "warp", 4) == 0) {
        fits = parse_count(value, WARP_MAX, &config.warp_size) &&
               (config.warp_size & (config.warp_size - 1)) == 0;
        expected = "1, 2, 4, 8, 16 or 32 lanes";
    } else if (value && key_len == 7 && memcmp(item, "threads", 7) == 0) {
        fits = parse_count(value, THREADS_MAX, &config.threads_max);
        expected = "a number of threads from 1 to 1024";
    } else if (value && key_len == 8 && memcmp(item, "switches", 8) == 0) {
        fits = parse_switches(value);
        expected = "a number to draw switches from, or 0 for none";
    } else if (value && key_len == 4 && memcmp(item, "host", 4) == 0) {
        fits = parse_size(value, &config.host_bytes);
        expected = "a size, or 0 for no limit";
    } else if (value && key_len == 4 && memcmp(item, "link", 4) == 0) {
        fits = parse_size(value, &config.link_bytes);
        expected = "a size a second, or 0 for no limit";
    } else if (value && key_len == 6 && memcmp(item, "gap_us", 6) == 0) {
        fits = parse_gap(value);
        expected = "0 to 1000000 microseconds";
    } else if (value && key_len == 8 && memcmp(item, "instance", 8) == 0) {
        fits = parse_instance(value);
        expected = "1 to 47 letters, digits or any of . _ -";
    }
    if (!fits)
        set_config_error(item, expected);
}

/* Of the two that belong together the one that was not given fits the other. */
static bool fit_warps(void)
{
    if (config.threads_max == 0)
        config.threads_max = config.warp_size == 0 || config.warp_size * WARPS_MAX > THREADS_DEFAULT_MAX
                                 ? THREADS_DEFAULT_MAX
                                 : config.warp_size * WARPS_MAX;
    if (config.warp_size == 0)
        for (config.warp_size = WARP_MAX; config.threads_max % config.warp_size != 0;)
            config.warp_size /= 2;
    return config.threads_max % config.warp_size == 0 &&
           config.threads_max / config.warp_size <= WARPS_MAX;
}

static void set_defaults(void)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    long page_bytes = sysconf(_SC_PAGESIZE);
    uint64_t memory = MEMORY_DEFAULT_MAX;
    cpu_set_t cpus;
    int cpu_count = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;

    if (pages > 0 && page_bytes > 0 && (uint64_t)pages * (uint64_t)page_bytes / 2 < memory)
        memory = (uint64_t)pages * (uint64_t)page_bytes / 2;
    if (memory < SOFT_GRANULARITY_BYTES)
        memory = SOFT_GRANULARITY_BYTES;
    config = (soft_config){
        .device_count = 1,
        .peers_group = SOFT_DEVICES_MAX,
        .memory_bytes = memory & ~(SOFT_GRANULARITY_BYTES - 1),
        .sm_count = cpu_count < 1                 ? 1
                    : cpu_count > SMS_DEFAULT_MAX ? SMS_DEFAULT_MAX
                                                  : cpu_count,
        .gap_us = GAP_US_DEFAULT,
        .instance = "default",
    };
}

static void read_settings(void)
{
    char items[TEXT_MAX];
    const char *setting = secure_getenv("GVMEM_SOFTGPU");
    char *next = items;

    set_defaults();
    snprintf(text, sizeof text, "no error");
    if (setting && strlen(setting) >= sizeof items)
        set_config_error(setting, "at most 255 characters");
    else if (setting && setting[0] != '\0')
        strcpy(items, setting);
    else
        next = NULL;
    while (next && result == CUDA_SUCCESS)
        parse_item(strsep(&next, ","));
    if (result == CUDA_SUCCESS && !fit_warps())
        set_config_error(setting, "threads= of whole warps, 32 of them at most (warp=)");
    if (result != CUDA_SUCCESS) {
        set_defaults();
        (void)fit_warps();
    }
}

bool soft_is_peer(int device, int of)
{
    const soft_config *machine;

    (void)soft_config_get(&machine, NULL);
    return device != of && device / machine->peers_group == of / machine->peers_group;
}

CUresult soft_config_get(const soft_config **out, const char **out_text)
{
    pthread_once(&once, read_settings);
    *out = &config;
    if (out_text)
        *out_text = text;
    return result;
}
