// What every call of the driver checks first, and the switches that tests set.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define MAX_NAMES 512
#define MAX_FAULTS 16

static const Settings defaults = {
    .driver_version = 13000, .devices = 1, .major = 8, .minor = 9, .memory = 16ull << 30, .name = "Stand-in GPU"};

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
Counts counts;
Settings settings = {
    .driver_version = 13000, .devices = 1, .major = 8, .minor = 9, .memory = 16ull << 30, .name = "Stand-in GPU"};

// What kind of machine a program sees that no test speaks to: TRTPOST_STANDIN_GPU="9.0 12.4", compute capability and
// CUDA version. Until the first reset.
__attribute__((constructor)) static void read_environment(void) {
    const char *text = getenv("TRTPOST_STANDIN_GPU");
    int major, minor, cuda_major, cuda_minor;
    if (!text || sscanf(text, "%d.%d %d.%d", &major, &minor, &cuda_major, &cuda_minor) != 4) return;
    settings.major = major;
    settings.minor = minor;
    settings.driver_version = cuda_major * 1000 + cuda_minor * 10;
}

static int initialised;
static CUresult lost;
static struct {
    const char *name;  // __func__ of the function: compared by address
    unsigned long long number;
} calls[MAX_NAMES];
static struct {
    char name[64];
    unsigned after;
    CUresult code;
} faults[MAX_FAULTS];

// Is `name`, as a test writes it, the exported `function`? The version suffix may be left out.
static int same_function(const char *function, const char *name) {
    size_t length = strlen(name);
    if (strncmp(function, name, length)) return 0;
    const char *rest = function + length;
    return !*rest || (rest[0] == '_' && rest[1] == 'v' && rest[2] >= '1' && rest[2] <= '9' && !rest[3]);
}

static void count_call(const char *function) {
    for (int i = 0; i < MAX_NAMES; i++) {
        if (!calls[i].name) calls[i].name = function;
        if (calls[i].name == function) {
            calls[i].number++;
            return;
        }
    }
}

static CUresult take_fault(const char *function) {
    CUresult code = CUDA_SUCCESS;
    for (int i = 0; i < MAX_FAULTS; i++) {
        if (!faults[i].name[0] || !same_function(function, faults[i].name)) continue;
        if (faults[i].after-- > 0) continue;
        faults[i].name[0] = 0;
        code = faults[i].code;
    }
    return code;
}

CUresult enter(const char *function, int rules) {
    pthread_mutex_lock(&lock);
    count_call(function);
    CUresult result = take_fault(function);
    if (!result && !initialised && !(rules & BEFORE_INIT)) result = CUDA_ERROR_NOT_INITIALIZED;
    if (!result && lost && !(rules & WHEN_LOST)) result = lost;
    if (!result && (rules & IN_CONTEXT)) result = check_context();
    if (!result && (rules & UNSAFE)) result = check_unsafe();
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult lose(CUresult code) {
    pthread_mutex_lock(&lock);
    if (!lost) lost = code;
    code = lost;
    pthread_mutex_unlock(&lock);
    return code;
}

CUresult unless_lost(CUresult result) {
    return lost ? lost : result;
}

API cuInit(unsigned flags) {
    ENTER(BEFORE_INIT | WHEN_LOST);
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    if (!settings.devices) return CUDA_ERROR_NO_DEVICE;
    initialised = 1;
    return CUDA_SUCCESS;
}

// ---- handles ----

static Handle *lists[KINDS];

Handle *handles(Kind kind) {
    return lists[kind];
}

static unsigned long long *counter_of(Kind kind) {
    switch (kind) {
    case STREAM: return &counts.streams;
    case EVENT: return &counts.events;
    case GRAPH: return &counts.graphs;
    case GRAPH_EXEC: return &counts.graph_execs;
    case MODULE: return &counts.modules;
    case CONTEXT: return &counts.contexts;
    default: return NULL;
    }
}

void *new_handle(Kind kind, size_t size) {
    Handle *handle = calloc(1, size);
    handle->kind = kind;
    handle->alive = 1;
    pthread_mutex_lock(&lock);
    handle->next = lists[kind];
    lists[kind] = handle;
    if (counter_of(kind)) ++*counter_of(kind);
    pthread_mutex_unlock(&lock);
    return handle;
}

static Handle **find_handle(Kind kind, const void *handle) {
    Handle **place = &lists[kind];
    while (*place && *place != handle) place = &(*place)->next;
    return *place ? place : NULL;
}

int alive(Kind kind, const void *handle) {
    pthread_mutex_lock(&lock);
    int found = find_handle(kind, handle) != NULL;
    if (!found) counts.bad_handles++;
    pthread_mutex_unlock(&lock);
    return found;
}

int end_handle(Kind kind, void *handle) {
    pthread_mutex_lock(&lock);
    Handle **place = find_handle(kind, handle);
    if (place) {
        // Taken out of the list but never freed: its address must not come back as another handle.
        *place = (*place)->next;
        ((Handle *)handle)->alive = 0;
        if (counter_of(kind)) --*counter_of(kind);
    } else {
        counts.bad_frees++;
    }
    pthread_mutex_unlock(&lock);
    return place != NULL;
}

// ---- what tests call ----

void standin_reset(void) {
    pthread_mutex_lock(&lock);
    for (Handle *stream = lists[STREAM]; stream; stream = stream->next) free_capture((Stream *)stream);
    memset(&counts.bad_frees, 0, sizeof counts - offsetof(Counts, bad_frees));
    for (int i = 0; i < MAX_NAMES; i++) calls[i].number = 0;
    memset(faults, 0, sizeof faults);
    settings = defaults;
    lost = CUDA_SUCCESS;
    pthread_mutex_unlock(&lock);
}

void standin_counts(Counts *copy) {
    pthread_mutex_lock(&lock);
    *copy = counts;
    pthread_mutex_unlock(&lock);
}

unsigned long long standin_calls(const char *function) {
    unsigned long long number = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_NAMES && calls[i].name; i++)
        if (same_function(calls[i].name, function)) number += calls[i].number;
    pthread_mutex_unlock(&lock);
    return number;
}

void standin_fail(const char *function, unsigned after, CUresult code) {
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < MAX_FAULTS && faults[i].name[0]) i++;
    if (i < MAX_FAULTS) {
        snprintf(faults[i].name, sizeof faults[i].name, "%s", function);
        faults[i].after = after;
        faults[i].code = code;
    }
    pthread_mutex_unlock(&lock);
}

void standin_lose(CUresult code) {
    lose(code);
}

void standin_defer(int on) {
    if (!on) finish_all(1);
    settings.deferring = on;
}

void standin_device(const char *name, int major, int minor, unsigned long long memory) {
    pthread_mutex_lock(&lock);
    snprintf(settings.name, sizeof settings.name, "%s", name);
    settings.major = major;
    settings.minor = minor;
    settings.memory = memory;
    pthread_mutex_unlock(&lock);
}

void standin_driver(int version, int devices) {
    settings.driver_version = version;
    settings.devices = devices > MAX_DEVICES ? MAX_DEVICES : devices;
}
