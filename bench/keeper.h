/* bench/keeper.h - measuring the keeper: what the master orders from the processes that are
 * the keeper's clients, and what they answer.
 *
 * The master measures the machine (link, memory) and keeps the record; it is no client itself.
 * Processes are forked before the first driver call and obey one order after another until the
 * socket closes; one of them runs the keeper, the others are clients.
 */
#ifndef BENCH_KEEPER_H
#define BENCH_KEEPER_H

#include <gvmem/client.h>
#include <gvmem/keeper.h>

#include <time.h>

#include "bench/bench.h"

#define BENCH_CLIENTS 8
#define BENCH_SLOTS 4
#define BENCH_NAME_BYTES 32

typedef enum keeper_order_kind {
    KEEPER_ORDER_SERVE,   /* runs the keeper, from now on to the end of the process */
    KEEPER_ORDER_CONNECT, /* opens the device, connects to path, runs a kernel once */
    KEEPER_ORDER_CREATE,  /* name in slot: bytes committed, of reserve_bytes; published */
    KEEPER_ORDER_OPEN,    /* name in slot */
    KEEPER_ORDER_CLOSE,   /* slot */
    KEEPER_ORDER_DROP,    /* name */
    KEEPER_ORDER_GROW,    /* slot to bytes -> us */
    KEEPER_ORDER_TRIM,    /* the keeper's free device memory goes to the driver */
    KEEPER_ORDER_TURN,    /* slot: acquire mode with hint, count kernels, release -> times, sum */
    KEEPER_ORDER_FAST,    /* slot: pairs of acquire (mode) and release from start_ns on */
    KEEPER_ORDER_SLOW,    /* name: two connections take the write lease from each other */
    KEEPER_ORDER_EVICT,   /* name: evict, trim, wait until the driver has bytes more -> us */
    KEEPER_ORDER_FIGURES, /* the device's figures, and slot's if in use */
    KEEPER_ORDER_HOST,    /* sum over bytes of host-mapped memory and of device memory -> GB/s */
    KEEPER_ORDER_ECHO,    /* sends back count bytes, one by one as they come */
    KEEPER_ORDER_SWAP, /* slot: from start_ns on, acquire to read, read words -> end_ns, sum; release */
    KEEPER_ORDER_ATTACH, /* name: closes the connection, connects, opens in slot, acquires, reads words -> us */
} keeper_order_kind;

typedef struct keeper_order {
    uint32_t kind, slot, mode, hint, count, unused;
    uint64_t bytes, reserve_bytes, chunk_bytes, seed; /* chunk_bytes of CREATE: 0: the keeper's choice */
    int64_t start_ns;                                 /* FAST, SWAP: CLOCK_MONOTONIC */
    char name[BENCH_NAME_BYTES];
    char path[108];
} keeper_order;

typedef struct keeper_answer {
    gvm_status status;
    double us;                       /* of what was asked for, in all */
    double acquire_us;               /* TURN, EVICT */
    double p50_ns, p99_ns, clock_ns; /* FAST, SLOW: clock_ns, subtracted, is in neither */
    double pairs_per_s, floor_ns;    /* FAST: floor_ns: two atomic additions and two loads */
    double host_rate, device_rate;   /* HOST: GB/s */
    double sum;
    int64_t end_ns; /* SWAP */
    gvm_object_info object;
    gvm_keeper_device_info device;
    gvm_keeper_info keeper;
    char text[400];
} keeper_answer;

/* What the processes need to know before they start. */
typedef struct keeper_plan {
    int ordinal;
    int lender; /* a device that lends memory; -1: none */
    uint64_t device_budget_bytes, host_budget_bytes;
    char folder[64], path[100];
    const char *trace_path; /* NULL: none */
} keeper_plan;

/* What a process runs; arg is a keeper_plan. */
int bench_keeper_client(int socket, const void *arg);

/* For bench.c, with the device's context current. */
void bench_keeper(bench *b); /* keeper.c */
void bench_models(bench *b); /* models.c */

/* ---- keeper_master.c
 * What returns a bool has complained, in a note and by b->code, where it is false. */

typedef struct bench_master {
    keeper_plan plan;
    peer clients[BENCH_CLIENTS + 1]; /* the last one is the keeper */
    double h2d, d2h, both; /* GB/s of the link: alone, and each direction of both at once */
} bench_master;

extern bench_master master;

/* Forks, before the first driver call. The keeper's device budget is usual_bytes on a GPU, unless the options say
 * otherwise. */
bool master_start(bench *b, uint64_t usual_bytes);
bool master_connect_all(bench *b); /* starts the keeper, too */
int master_finish(void);           /* ends the processes; an exit status */

/* An order and its answer, at once or apart, for some to work at the same time. */
keeper_order master_order_of(keeper_order_kind kind, uint32_t slot, const char *name);
bool master_send(bench *b, int client, const keeper_order *o);
bool master_receive(bench *b, int client, const char *what, keeper_answer *a);
bool master_order(bench *b, int client, const char *what, const keeper_order *o, keeper_answer *a);
bool master_order_simple(bench *b, int client, keeper_order_kind kind, uint32_t slot, const char *name);
bool master_order_turn(bench *b, int client, uint32_t slot, gvm_lease_mode mode, gvm_hint hint,
                       uint32_t count, keeper_answer *a);
bool master_get_figures(bench *b, int client, keeper_answer *a); /* and of slot 0 */

/* An object of so many bytes with numbers in it; chunk_bytes may be 0. */
bool master_make_object(bench *b, int client, uint32_t slot, const char *name, uint64_t bytes,
                        uint64_t chunk_bytes);
bool master_end_object(bench *b, int client, uint32_t slot, const char *name);

bool master_measure_link(bench *b);
double master_us_for_bytes(double bytes, double gb_per_s);

/* Prints and records a figure, its floor, and how often the floor goes into it. Names are constants. */
typedef struct figure_names {
    const char *name, *floor, *ratio;
} figure_names;
#define NAMES(name) ((figure_names){name, name ", floor", name ", over its floor"})

void master_print_head(bench *b, const char *title);
void master_record(bench *b, figure_names names, const char *unit, uint64_t bytes,
                   const bench_samples *samples, double floor);

/* ---- keeper_clock.c */

/* Time stamps for what takes nanoseconds. */
static inline uint64_t bench_stamp(void)
{
#if defined(__x86_64__)
    uint32_t low, high;

    __asm__ volatile("lfence\n\trdtsc\n\tlfence" : "=a"(low), "=d"(high) : : "memory");
    return (uint64_t)high << 32 | low;
#else
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
#endif
}

double bench_ns_per_stamp(void);  /* measured once */
double bench_stamp_cost_ns(void); /* median of two stamps with nothing between */
int64_t bench_now_ns(void);

/* The pth (0 to 1) of count stamps' differences, which are sorted here, in ns. */
double bench_percentile_ns(uint64_t *differences, uint32_t count, double p);

#endif
