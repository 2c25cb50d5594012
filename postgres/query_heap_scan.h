/* postgres/query_heap_scan.h - plan nodes of joins whose outer rows are batches (query_heap.h): their execution. */
#ifndef GSTORE_QUERY_HEAP_SCAN_H
#define GSTORE_QUERY_HEAP_SCAN_H

#include "postgres.h"

#include "nodes/extensible.h"

extern const CustomScanMethods gstore_heap_join_scan, gstore_heap_batch_scan;

#endif
