// Shared by the files of the stand-in driver: state behind one lock, handles, and work that streams carry out.
#pragma once

#include <cuda.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "control.h"

#define API EXPORT CUresult CUDAAPI
#define POINTER(device_address) ((void *)(uintptr_t)(device_address))
#define MAX_DEVICES 8

// ---- state.c: one lock, what every call checks first, and what tests set ----

extern pthread_mutex_t lock;  // guards everything below; never held while foreign code runs
extern Counts counts;

typedef struct {
    int driver_version, devices, major, minor, deferring;
    unsigned long long memory;
    char name[128];
} Settings;
extern Settings settings;

enum {
    ANY_TIME = 0,
    BEFORE_INIT = 1,    // answers without cuInit
    IN_CONTEXT = 2,     // fails without a current context
    UNSAFE = 4,         // may synchronise: breaks a capture, as cuThreadExchangeStreamCaptureMode describes
    WHEN_LOST = 8,      // answers although the device is lost
};

// Counts the call, applies a fault that a test has set, and refuses what the real driver would refuse.
CUresult enter(const char *function, int rules);
#define ENTER(rules)                                    \
    do {                                                \
        CUresult refused_ = enter(__func__, (rules));   \
        if (refused_ != CUDA_SUCCESS) return refused_;  \
    } while (0)

CUresult lose(CUresult code);        // the device is lost; returns the code it was lost with first
CUresult unless_lost(CUresult result);  // what a free returns: the loss if there is one
#define COUNT(field, number) __atomic_fetch_add(&counts.field, (unsigned long long)(number), __ATOMIC_RELAXED)

// Handles are never reused, so a dead one is recognised for ever.
typedef enum { STREAM, EVENT, GRAPH, GRAPH_EXEC, MODULE, FUNCTION, CONTEXT, KINDS } Kind;
typedef struct Handle {
    Kind kind;
    int alive;
    struct Handle *next;
} Handle;
void *new_handle(Kind kind, size_t size);
int alive(Kind kind, const void *handle);  // counts the mistake where it is not
int end_handle(Kind kind, void *handle);   // 0 and a counted mistake where it was dead already
Handle *handles(Kind kind);                // head of the list; under the lock

// ---- context.c ----

CUresult check_context(void);
CUcontext current_context(void);

// ---- memory.c ----

typedef struct Block {
    struct Block *next;
    char *address;
    size_t size, span;
    CUmemorytype type;
    int registered;  // page-locked in place by cuMemHostRegister: not ours to free
    unsigned long long id;
} Block;
int find_block(const void *address, size_t size, Block *found);

// ---- stream.c: work ----

typedef struct CUevent_st {
    Handle handle;
    unsigned flags;
    int captured;                     // recorded last in a capture: it has no time
    unsigned long long asked, done;   // records submitted and carried out
    struct CUstream_st *stream;       // where it was recorded last
    struct timespec time;
} Event;

typedef enum { COPY, SET, KERNEL, HOST_FUNCTION, CALLBACK, RECORD } WorkKind;
typedef enum { ANYWHERE, ON_HOST, ON_DEVICE } Place;

typedef struct Work {
    WorkKind kind;
    struct Work *next;
    union {
        struct {
            char *to;
            const char *from;
            size_t width, height, to_pitch, from_pitch;
            Place to_place, from_place;
        } copy;
        struct {
            char *to;
            unsigned value;
            size_t element, width, height, pitch;
        } set;
        struct {
            CUfunction function;
            unsigned grid[3], block[3];
            void *arguments;
            size_t size;
        } kernel;
        struct {
            CUhostFn function;
            CUstreamCallback callback;
            CUstream stream;
            void *data;
        } host;
        struct {
            Event *event;
            unsigned long long number;
        } record;
    };
} Work;

typedef struct CUstream_st {
    Handle handle;
    unsigned flags;
    int priority;
    unsigned long long id;
    Work *first, **last;  // waiting, while deferring
    int busy;             // one thread carries out the queue at a time
    struct CUgraph_st *capture;
    int capture_mode, capture_broken;
    unsigned long long capture_id;
    pthread_t capture_thread;
} Stream;

Stream *stream_of(CUstream handle);  // NULL and a counted mistake for a dead handle
int is_default(CUstream handle);
CUresult submit(CUstream stream, const Work *work);  // record while capturing, otherwise run or queue
CUresult run_now(const Work *work);                  // after everything that waits
CUresult run(const Work *work);
CUresult finish(Stream *stream, int wait);
CUresult finish_all(int wait);
Work *copy_of(const Work *work);
void drop_work(Work *work);

// Memory's part of the work.
CUresult run_copy(const Work *work);
CUresult run_set(const Work *work);
CUresult check_copy(const Work *work);
CUresult check_set(const Work *work);
CUresult run_kernel(const Work *work);

// ---- graph.c ----

void break_capture(Stream *stream);           // under the lock
CUresult check_unsafe(void);                  // under the lock: would an unsafe call break a capture?
CUresult check_default_stream(void);          // under the lock: would the default stream?
CUresult refuse_while_capturing(Stream *stream);  // under the lock: breaks the stream's own capture
void record_in_graph(Stream *stream, const Work *work);
void free_capture(Stream *stream);
