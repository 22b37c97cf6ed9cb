// What tests ask of the stand-in driver, beside the CUDA driver API itself. Mirrored by tests/standin/control.py.
#pragma once

#include <cuda.h>

#define EXPORT __attribute__((visibility("default")))

// Every field is an unsigned long long, so that Python reads the struct by its list of names alone.
typedef struct {
    // Alive now: what has been made and not yet freed.
    unsigned long long device_blocks, device_bytes;
    unsigned long long host_blocks, host_bytes;  // page-locked, allocated or registered
    unsigned long long streams, events, graphs, graph_execs, modules;
    unsigned long long contexts;      // made by cuCtxCreate
    unsigned long long primary_refs;  // retained primary contexts
    // Mistakes since the last reset.
    unsigned long long bad_frees;     // freed twice, or never allocated
    unsigned long long bad_handles;   // a dead stream, event, graph, module, function or context was used
    unsigned long long bad_accesses;  // an address range that is not inside one living block
    unsigned long long overruns;      // blocks that something had written past, seen when they were freed
    unsigned long long bad_launches;  // wrong arguments, grid or block
    // Work since the last reset.
    unsigned long long launches, graph_launches, host_functions, memsets;
    unsigned long long copies_to_device, copies_to_host, copies_on_device;
    unsigned long long bytes_to_device, bytes_to_host;
    unsigned long long pageable_copies;  // asynchronous ones from or to memory that is not page-locked
    unsigned long long captures, broken_captures;
} Counts;

// Forget mistakes, work, call counts, faults, captures and a lost device; default device, driver and memory. What is alive stays
// alive and counted: objects that a test leaked may still be freed later.
EXPORT void standin_reset(void);
EXPORT void standin_counts(Counts *counts);

// How often a driver function was called since the last reset; names with or without _v2.
EXPORT unsigned long long standin_calls(const char *function);

// The call of `function` after the next `after` ones returns `code` and does nothing, once.
EXPORT void standin_fail(const char *function, unsigned after, CUresult code);

// The device is lost: everything fails with `code` from now on. Frees are still counted.
EXPORT void standin_lose(CUresult code);

// While on, the work of a stream waits until something synchronises with it, so that reading too early shows.
EXPORT void standin_defer(int on);

// The library with the host build of the kernels; returns 0 if it could be loaded. NULL: TRTPOST_STANDIN_KERNELS.
EXPORT int standin_kernels(const char *path);

EXPORT void standin_device(const char *name, int major, int minor, unsigned long long memory);
EXPORT void standin_driver(int version, int devices);

// 2 for a range inside one living device block, 1 for page-locked host memory, 0 for neither.
EXPORT int standin_kind(const void *address, size_t size);

// What a kernel that touches the range on the device would do: nothing, or lose the device.
EXPORT CUresult standin_access(const void *address, size_t size);
