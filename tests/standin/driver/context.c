// Devices, their attributes, and contexts. Every thread has its own stack of contexts.
#include <stdio.h>
#include <string.h>

#include "internal.h"

#define MAX_DEPTH 64
#define MAX_LIMITS 16

typedef struct CUctx_st {
    Handle handle;
    unsigned flags;
    int device;
    int is_primary, references;
    size_t limits[MAX_LIMITS];
} Context;

static Context primaries[MAX_DEVICES];
static __thread CUcontext stack[MAX_DEPTH];
static __thread int depth;

static int is_primary(CUcontext context) {
    return context >= primaries && context < primaries + MAX_DEVICES;
}

// Under the lock. A primary context is alive while somebody retains it.
static int is_alive(CUcontext context) {
    if (is_primary(context)) return context->references > 0;
    for (Handle *other = handles(CONTEXT); other; other = other->next)
        if (other == (Handle *)context) return 1;
    return 0;
}

CUcontext current_context(void) {
    return depth ? stack[depth - 1] : NULL;
}

CUresult check_context(void) {
    CUcontext context = current_context();
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    if (is_alive(context)) return CUDA_SUCCESS;
    counts.bad_handles++;
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static CUresult push(CUcontext context) {
    pthread_mutex_lock(&lock);
    int usable = context && is_alive(context);
    if (!usable) counts.bad_handles++;
    pthread_mutex_unlock(&lock);
    if (!usable) return CUDA_ERROR_INVALID_CONTEXT;
    if (depth == MAX_DEPTH) return CUDA_ERROR_INVALID_VALUE;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

static int no_such_device(CUdevice device) {
    return device < 0 || device >= settings.devices;
}

// ---- errors ----

static const struct {
    CUresult code;
    const char *name, *text;
} errors[] = {
#define ERROR(name, text) {CUDA_##name, "CUDA_" #name, text}
    ERROR(SUCCESS, "no error"),
    ERROR(ERROR_INVALID_VALUE, "invalid argument"),
    ERROR(ERROR_OUT_OF_MEMORY, "out of memory"),
    ERROR(ERROR_NOT_INITIALIZED, "initialization error"),
    ERROR(ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    ERROR(ERROR_INVALID_DEVICE, "invalid device ordinal"),
    ERROR(ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    ERROR(ERROR_INVALID_CONTEXT, "invalid device context"),
    ERROR(ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
    ERROR(ERROR_INVALID_PTX, "a PTX JIT compilation failed"),
    ERROR(ERROR_UNSUPPORTED_PTX_VERSION, "the provided PTX was compiled with an unsupported toolchain."),
    ERROR(ERROR_FILE_NOT_FOUND, "file not found"),
    ERROR(ERROR_INVALID_HANDLE, "invalid resource handle"),
    ERROR(ERROR_NOT_FOUND, "named symbol not found"),
    ERROR(ERROR_NOT_READY, "device not ready"),
    ERROR(ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    ERROR(ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    ERROR(ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    ERROR(ERROR_NOT_SUPPORTED, "operation not supported"),
    ERROR(ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"),
    ERROR(ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"),
    ERROR(ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began"),
    ERROR(ERROR_STREAM_CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream"),
    ERROR(ERROR_STREAM_CAPTURE_IMPLICIT, "operation would make the legacy stream depend on a capturing blocking stream"),
    ERROR(ERROR_CAPTURED_EVENT, "operation not permitted on an event last recorded in a capturing stream"),
    ERROR(ERROR_STREAM_CAPTURE_WRONG_THREAD, "attempt to terminate a thread-local capture sequence from another thread"),
    ERROR(ERROR_GRAPH_EXEC_UPDATE_FAILURE, "the graph update was not performed because it included changes which "
                                           "violated constraints specific to instantiated graph update"),
    ERROR(ERROR_UNKNOWN, "unknown error"),
#undef ERROR
};

static int error_index(CUresult code) {
    int last = (int)(sizeof errors / sizeof errors[0]) - 1;
    for (int i = 0; i < last; i++)
        if (errors[i].code == code) return i;
    return last;
}

API cuGetErrorName(CUresult code, const char **name) {
    *name = errors[error_index(code)].name;
    return CUDA_SUCCESS;
}

API cuGetErrorString(CUresult code, const char **text) {
    *text = errors[error_index(code)].text;
    return CUDA_SUCCESS;
}

// ---- devices ----

API cuDriverGetVersion(int *version) {
    ENTER(BEFORE_INIT | WHEN_LOST);
    *version = settings.driver_version;
    return CUDA_SUCCESS;
}

API cuDeviceGet(CUdevice *device, int ordinal) {
    ENTER(WHEN_LOST);
    if (no_such_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

API cuDeviceGetCount(int *count) {
    ENTER(WHEN_LOST);
    *count = settings.devices;
    return CUDA_SUCCESS;
}

API cuDeviceGetName(char *name, int length, CUdevice device) {
    ENTER(WHEN_LOST);
    if (no_such_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)length, "%s", settings.name);
    return CUDA_SUCCESS;
}

API cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    ENTER(WHEN_LOST);
    if (no_such_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    memcpy(uuid->bytes, "stand-in device ", sizeof uuid->bytes);
    uuid->bytes[sizeof uuid->bytes - 1] = (char)('0' + device);
    return CUDA_SUCCESS;
}

API cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    ENTER(WHEN_LOST);
    if (no_such_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    *bytes = settings.memory;
    return CUDA_SUCCESS;
}

API cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
    ENTER(WHEN_LOST);
    if (no_such_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    *major = settings.major;
    *minor = settings.minor;
    return CUDA_SUCCESS;
}

API cuDeviceGetPCIBusId(char *name, int length, CUdevice device) {
    ENTER(WHEN_LOST);
    if (no_such_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)length, "0000:%02x:00.0", device + 1);
    return CUDA_SUCCESS;
}

API cuDeviceGetByPCIBusId(CUdevice *device, const char *name) {
    ENTER(WHEN_LOST);
    unsigned bus = 0;
    if (sscanf(name, "0000:%2x:00.0", &bus) != 1 || no_such_device((int)bus - 1)) return CUDA_ERROR_INVALID_DEVICE;
    *device = (int)bus - 1;
    return CUDA_SUCCESS;
}

API cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
    ENTER(WHEN_LOST);
    (void)device, (void)peer;
    *can = 0;
    return CUDA_SUCCESS;
}

// The numbers of an Ada GPU; what is not listed is 0, as for a feature that a GPU lacks.
API cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    ENTER(WHEN_LOST);
    if (no_such_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    switch (attribute) {
#define ATTRIBUTE(name, number) \
    case CU_DEVICE_ATTRIBUTE_##name: *value = (number); break
        ATTRIBUTE(COMPUTE_CAPABILITY_MAJOR, settings.major);
        ATTRIBUTE(COMPUTE_CAPABILITY_MINOR, settings.minor);
        ATTRIBUTE(MAX_THREADS_PER_BLOCK, 1024);
        ATTRIBUTE(MAX_BLOCK_DIM_X, 1024);
        ATTRIBUTE(MAX_BLOCK_DIM_Y, 1024);
        ATTRIBUTE(MAX_BLOCK_DIM_Z, 64);
        ATTRIBUTE(MAX_GRID_DIM_X, 2147483647);
        ATTRIBUTE(MAX_GRID_DIM_Y, 65535);
        ATTRIBUTE(MAX_GRID_DIM_Z, 65535);
        ATTRIBUTE(MAX_SHARED_MEMORY_PER_BLOCK, 49152);
        ATTRIBUTE(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 101376);
        ATTRIBUTE(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 102400);
        ATTRIBUTE(RESERVED_SHARED_MEMORY_PER_BLOCK, 1024);
        ATTRIBUTE(TOTAL_CONSTANT_MEMORY, 65536);
        ATTRIBUTE(WARP_SIZE, 32);
        ATTRIBUTE(MAX_PITCH, 2147483647);
        ATTRIBUTE(MAX_REGISTERS_PER_BLOCK, 65536);
        ATTRIBUTE(MAX_REGISTERS_PER_MULTIPROCESSOR, 65536);
        ATTRIBUTE(CLOCK_RATE, 2520000);
        ATTRIBUTE(MEMORY_CLOCK_RATE, 10501000);
        ATTRIBUTE(GLOBAL_MEMORY_BUS_WIDTH, 384);
        ATTRIBUTE(TEXTURE_ALIGNMENT, 512);
        ATTRIBUTE(TEXTURE_PITCH_ALIGNMENT, 32);
        ATTRIBUTE(SURFACE_ALIGNMENT, 512);
        ATTRIBUTE(GPU_OVERLAP, 1);
        ATTRIBUTE(ASYNC_ENGINE_COUNT, 2);
        ATTRIBUTE(MULTIPROCESSOR_COUNT, 128);
        ATTRIBUTE(CAN_MAP_HOST_MEMORY, 1);
        ATTRIBUTE(CONCURRENT_KERNELS, 1);
        ATTRIBUTE(PCI_BUS_ID, device + 1);
        ATTRIBUTE(UNIFIED_ADDRESSING, 1);
        ATTRIBUTE(L2_CACHE_SIZE, 75497472);
        ATTRIBUTE(MAX_THREADS_PER_MULTIPROCESSOR, 1536);
        ATTRIBUTE(MAX_BLOCKS_PER_MULTIPROCESSOR, 24);
        ATTRIBUTE(STREAM_PRIORITIES_SUPPORTED, 1);
        ATTRIBUTE(GLOBAL_L1_CACHE_SUPPORTED, 1);
        ATTRIBUTE(LOCAL_L1_CACHE_SUPPORTED, 1);
        ATTRIBUTE(COMPUTE_PREEMPTION_SUPPORTED, 1);
        ATTRIBUTE(HOST_REGISTER_SUPPORTED, 1);
        ATTRIBUTE(CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1);
#undef ATTRIBUTE
    default: *value = 0;
    }
    return CUDA_SUCCESS;
}

// ---- contexts ----

#undef cuCtxCreate
static CUresult create(CUcontext *context, unsigned flags, CUdevice device) {
    if (no_such_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    *context = new_handle(CONTEXT, sizeof **context);
    (*context)->flags = flags;
    (*context)->device = device;
    return push(*context);
}

API cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device) {
    ENTER(ANY_TIME);
    return create(context, flags, device);
}

API cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *parameters, unsigned flags, CUdevice device) {
    ENTER(ANY_TIME);
    (void)parameters;
    return create(context, flags, device);
}

static CUresult destroy(CUcontext context) {
    if (is_primary(context) || !end_handle(CONTEXT, context)) return CUDA_ERROR_INVALID_CONTEXT;
    if (current_context() == context) depth--;
    return unless_lost(CUDA_SUCCESS);
}

API cuCtxDestroy_v2(CUcontext context) {
    ENTER(WHEN_LOST);
    return destroy(context);
}

API cuCtxDetach(CUcontext context) {
    ENTER(WHEN_LOST);
    return destroy(context);
}

API cuCtxAttach(CUcontext *context, unsigned flags) {
    ENTER(IN_CONTEXT);
    (void)flags;
    *context = current_context();
    return CUDA_SUCCESS;
}

API cuCtxPushCurrent_v2(CUcontext context) {
    ENTER(WHEN_LOST);
    return push(context);
}

API cuCtxPopCurrent_v2(CUcontext *context) {
    ENTER(WHEN_LOST);
    if (!depth) return CUDA_ERROR_INVALID_CONTEXT;
    depth--;
    if (context) *context = stack[depth];
    return CUDA_SUCCESS;
}

API cuCtxSetCurrent(CUcontext context) {
    ENTER(WHEN_LOST);
    if (depth) depth--;
    return context ? push(context) : CUDA_SUCCESS;
}

API cuCtxGetCurrent(CUcontext *context) {
    ENTER(WHEN_LOST);
    *context = current_context();
    return CUDA_SUCCESS;
}

API cuCtxGetDevice(CUdevice *device) {
    ENTER(IN_CONTEXT | WHEN_LOST);
    *device = is_primary(current_context()) ? (CUdevice)(current_context() - primaries) : current_context()->device;
    return CUDA_SUCCESS;
}

API cuCtxGetFlags(unsigned *flags) {
    ENTER(IN_CONTEXT);
    *flags = current_context()->flags;
    return CUDA_SUCCESS;
}

API cuCtxGetApiVersion(CUcontext context, unsigned *version) {
    ENTER(ANY_TIME);
    (void)context;
    *version = 3020;
    return CUDA_SUCCESS;
}

API cuCtxGetLimit(size_t *value, CUlimit limit) {
    ENTER(IN_CONTEXT);
    if (limit >= MAX_LIMITS) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *value = current_context()->limits[limit];
    return CUDA_SUCCESS;
}

API cuCtxSetLimit(CUlimit limit, size_t value) {
    ENTER(IN_CONTEXT);
    if (limit >= MAX_LIMITS) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    current_context()->limits[limit] = value;
    return CUDA_SUCCESS;
}

API cuCtxGetCacheConfig(CUfunc_cache *config) {
    ENTER(IN_CONTEXT);
    *config = CU_FUNC_CACHE_PREFER_NONE;
    return CUDA_SUCCESS;
}

API cuCtxSetCacheConfig(CUfunc_cache config) {
    ENTER(IN_CONTEXT);
    (void)config;
    return CUDA_SUCCESS;
}

API cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    ENTER(IN_CONTEXT);
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return CUDA_SUCCESS;
}

API cuCtxSynchronize(void) {
    ENTER(IN_CONTEXT);
    CUresult refused = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    for (Handle *stream = handles(STREAM); stream; stream = stream->next)
        if (((Stream *)stream)->capture) refused = refuse_while_capturing((Stream *)stream);
    pthread_mutex_unlock(&lock);
    return refused ? refused : finish_all(1);
}

API cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    ENTER(ANY_TIME);
    if (no_such_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&lock);
    primaries[device].references++;
    counts.primary_refs++;
    pthread_mutex_unlock(&lock);
    *context = &primaries[device];
    return CUDA_SUCCESS;
}

API cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    ENTER(WHEN_LOST);
    if (device < 0 || device >= MAX_DEVICES) return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&lock);
    int retained = primaries[device].references > 0;
    if (retained) {
        primaries[device].references--;
        counts.primary_refs--;
    } else {
        counts.bad_frees++;
    }
    pthread_mutex_unlock(&lock);
    return retained ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

API cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
    ENTER(ANY_TIME);
    if (no_such_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    primaries[device].flags = flags;
    return CUDA_SUCCESS;
}

API cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    ENTER(WHEN_LOST);
    if (no_such_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    *flags = primaries[device].flags;
    *active = primaries[device].references > 0;
    return CUDA_SUCCESS;
}
