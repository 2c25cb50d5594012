/* tests/conform/graphs.h - what the cases about captures and graphs share (graphs.c).
 *
 * A capture that a case began is ended with the case, in whatever state it is then.
 */
#ifndef CONFORM_GRAPHS_H
#define CONFORM_GRAPHS_H

#include "tests/conform/execution.h"

/* Begins a capture, which the case owns. */
void take_capture(CUstream stream, CUstreamCaptureMode mode);
/* Ends it well; the case owns the graph. */
CUgraph end_capture(CUstream stream);
/* Ends it, if that works or not: no graph comes of it, and the stream is captured no more. */
CUresult try_end_capture(CUstream stream);
void conform_capture_end(CUstream stream); /* for own.c */
CUstreamCaptureStatus capture_status(CUstream stream);
/* The capture is invalid, gives no graph, and leaves a stream that works. */
void expect_spoilt(CUstream stream);
/* The capture goes on, and gives a graph. */
void expect_intact(CUstream stream);

CUgraph take_graph(void);
CUgraphExec take_exec(CUgraph graph);
size_t node_count(CUgraph graph);
size_t edge_count(CUgraph graph);
CUgraphNodeType node_type(CUgraph graph, size_t index);
/* Launches it and waits. */
void run_graph(CUgraphExec exec, CUstream stream);

/* Writes a value to a word of the scratch memory, by a kernel. */
void touch(unsigned index, uint32_t value, CUstream stream);
CUresult try_touch(unsigned index, uint32_t value, CUstream stream);

#endif
