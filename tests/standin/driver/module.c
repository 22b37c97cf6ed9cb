// Modules and kernels. The PTX says which kernels there are and what they take; a library with the same kernels built
// for the host runs them.
#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define MAX_PARAMETERS 64
#define MAX_ATTRIBUTES 32
#define SHARED_MEMORY 49152

typedef int (*HostLaunch)(const char *kernel, const unsigned grid[3], const unsigned block[3], const void *arguments,
                          size_t size);
static HostLaunch host_launch;

typedef struct {
    size_t offset, size;
} Parameter;

typedef struct CUfunc_st {
    Handle handle;
    struct CUfunc_st *next;
    struct CUmod_st *module;
    char name[256];
    Parameter parameters[MAX_PARAMETERS];
    int number;
    size_t size;  // of all arguments packed, without padding after the last
    unsigned required[3];
    int attributes[MAX_ATTRIBUTES];
} Function;

typedef struct CUmod_st {
    Handle handle;
    Function *functions;
} Module;

// ---- reading PTX ----

// Comments become blanks, so that words can be looked for.
static char *without_comments(const char *ptx) {
    char *text = strdup(ptx);
    for (char *at = text; *at; at++) {
        if (at[0] == '/' && at[1] == '/') {
            while (*at && *at != '\n') *at++ = ' ';
            if (!*at) break;
        } else if (at[0] == '/' && at[1] == '*') {
            while (*at && !(at[0] == '*' && at[1] == '/')) *at++ = ' ';
            if (!*at) break;
            at[0] = at[1] = ' ';
        }
    }
    return text;
}

static const char *after_word(const char *text, const char *word) {
    size_t length = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at += length)
        if (isspace((unsigned char)at[length])) return at + length;
    return NULL;
}

static size_t size_of_type(const char *word) {
    static const struct {
        const char *name;
        size_t size;
    } types[] = {{".b8", 1},  {".u8", 1},  {".s8", 1},  {".b16", 2}, {".u16", 2}, {".s16", 2}, {".f16", 2},
                 {".b32", 4}, {".u32", 4}, {".s32", 4}, {".f32", 4}, {".b64", 8}, {".u64", 8}, {".s64", 8},
                 {".f64", 8}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (!strcmp(types[i].name, word)) return types[i].size;
    return 0;
}

// One parameter, such as `.param .u64 .ptr .global .align 16 logits` or `.param .align 8 .b8 region[24]`.
static int add_parameter(Function *function, char *declaration) {
    size_t element = 0, align = 0, number = 1;
    int pointer = 0;
    char *rest = NULL;
    for (char *word = strtok_r(declaration, " \t\r\n", &rest); word; word = strtok_r(NULL, " \t\r\n", &rest)) {
        if (size_of_type(word)) {
            element = size_of_type(word);
        } else if (!strcmp(word, ".ptr")) {
            pointer = 1;
        } else if (!strcmp(word, ".align")) {
            char *value = strtok_r(NULL, " \t\r\n", &rest);
            if (value && !pointer) align = strtoul(value, NULL, 10);  // after .ptr: of what it points at
        } else if (strchr(word, '[')) {
            number = strtoul(strchr(word, '[') + 1, NULL, 10);
        }
    }
    if (!element || !number || function->number == MAX_PARAMETERS) return 0;
    if (!align) align = element;
    size_t offset = (function->size + align - 1) / align * align;
    function->parameters[function->number++] = (Parameter){offset, element * number};
    function->size = offset + element * number;
    return 1;
}

static void read_three(const char *text, unsigned three[3]) {
    three[0] = three[1] = three[2] = 1;
    sscanf(text, "%u , %u , %u", &three[0], &three[1], &three[2]);
}

// What stands between `.entry` and the kernel's body; NULL where it cannot be read.
static Function *read_entry(const char *text) {
    const char *body = strchr(text, '{');
    if (!body) return NULL;
    char *head = strndup(text, (size_t)(body - text));
    Function *function = calloc(1, sizeof *function);
    int read = sscanf(head, " %255[A-Za-z0-9_$%]", function->name) == 1;
    char *open = strchr(head, '('), *close = open ? strchr(open, ')') : NULL;
    if (open && close) {
        *close = 0;
        char *rest = NULL;
        for (char *one = strtok_r(open + 1, ",", &rest); one && read; one = strtok_r(NULL, ",", &rest))
            if (strspn(one, " \t\r\n") < strlen(one)) read = add_parameter(function, one);
    }
    int *attributes = function->attributes;
    attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 1024;
    attributes[CU_FUNC_ATTRIBUTE_NUM_REGS] = 32;
    attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = SHARED_MEMORY;
    attributes[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = -1;
    const char *after = close ? close + 1 : head;
    const char *most = after_word(after, ".maxntid"), *exactly = after_word(after, ".reqntid");
    unsigned limit[3];
    if (exactly) read_three(exactly, function->required);
    if (exactly || most) {
        read_three(exactly ? exactly : most, limit);
        attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = (int)(limit[0] * limit[1] * limit[2]);
    }
    free(head);
    if (read) return function;
    free(function);
    return NULL;
}

static void free_functions(Function *function) {
    while (function) {
        Function *next = function->next;
        free(function);
        function = next;
    }
}

// The driver must know the PTX's version, and the GPU must be at least the one that the PTX is for.
static CUresult check_header(const char *text) {
    int major = 0, minor = 0, target = 0;
    const char *version = after_word(text, ".version"), *architecture = strstr(text, "sm_");
    if (!version || sscanf(version, "%d.%d", &major, &minor) != 2 || !architecture) return CUDA_ERROR_INVALID_PTX;
    // PTX 8.x came with CUDA 12.x and 9.x with 13.x.
    int known_major = settings.driver_version / 1000 - 4, known_minor = settings.driver_version % 1000 / 10;
    if (major > known_major || (major == known_major && minor > known_minor))
        return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    sscanf(architecture, "sm_%d", &target);
    return target > settings.major * 10 + settings.minor ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_SUCCESS;
}

static CUresult load(CUmodule *result, const char *image) {
    if (!image) return CUDA_ERROR_INVALID_VALUE;
    if (!isspace((unsigned char)*image) && *image != '/' && *image != '.') return CUDA_ERROR_INVALID_IMAGE;
    char *text = without_comments(image);
    CUresult wrong = check_header(text);
    Function *functions = NULL;
    for (const char *at = text; !wrong && (at = after_word(at, ".entry"));) {
        Function *function = read_entry(at);
        if (!function) {
            wrong = CUDA_ERROR_INVALID_PTX;
            break;
        }
        function->next = functions;
        functions = function;
    }
    free(text);
    if (wrong) {
        free_functions(functions);
        return wrong;
    }
    Module *module = new_handle(MODULE, sizeof *module);
    for (Function *one = functions, *next; one; one = next) {
        next = one->next;
        Function *function = new_handle(FUNCTION, sizeof *function);
        Handle handle = function->handle;
        *function = *one;
        function->handle = handle;
        function->module = module;
        function->next = module->functions;
        module->functions = function;
        free(one);
    }
    *result = module;
    return CUDA_SUCCESS;
}

// ---- modules ----

API cuModuleLoadData(CUmodule *module, const void *image) {
    ENTER(IN_CONTEXT | UNSAFE);
    return load(module, image);
}

API cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned number, CUjit_option *options, void **values) {
    // Empty logs, whatever happens: callers read them after an error.
    for (unsigned i = 0; i < number; i++) {
        if (options[i] == CU_JIT_INFO_LOG_BUFFER || options[i] == CU_JIT_ERROR_LOG_BUFFER) *(char *)values[i] = 0;
        if (options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES || options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
            values[i] = NULL;
    }
    ENTER(IN_CONTEXT | UNSAFE);
    return load(module, image);
}

API cuModuleLoad(CUmodule *module, const char *path) {
    ENTER(IN_CONTEXT | UNSAFE);
    FILE *file = fopen(path, "rb");
    if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    char *image = calloc(1, (size_t)size + 1);
    size_t read = fread(image, 1, (size_t)size, file);
    fclose(file);
    CUresult result = read == (size_t)size ? load(module, image) : CUDA_ERROR_INVALID_IMAGE;
    free(image);
    return result;
}

API cuModuleUnload(CUmodule module) {
    ENTER(IN_CONTEXT | WHEN_LOST);
    if (!end_handle(MODULE, module)) return CUDA_ERROR_INVALID_HANDLE;
    for (Function *function = module->functions; function; function = function->next) end_handle(FUNCTION, function);
    return unless_lost(CUDA_SUCCESS);
}

API cuModuleGetFunction(CUfunction *result, CUmodule module, const char *name) {
    ENTER(IN_CONTEXT);
    if (!alive(MODULE, module)) return CUDA_ERROR_INVALID_HANDLE;
    Function *function = module->functions;
    while (function && strcmp(function->name, name)) function = function->next;
    if (!function) return CUDA_ERROR_NOT_FOUND;
    *result = function;
    return CUDA_SUCCESS;
}

API cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *size, CUmodule module, const char *name) {
    ENTER(IN_CONTEXT);
    (void)address, (void)size, (void)name;
    return alive(MODULE, module) ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
}

// ---- functions ----

API cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
    ENTER(IN_CONTEXT);
    if (!alive(FUNCTION, function)) return CUDA_ERROR_INVALID_HANDLE;
    *value = attribute < MAX_ATTRIBUTES ? function->attributes[attribute] : 0;
    return CUDA_SUCCESS;
}

API cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    ENTER(IN_CONTEXT);
    if (!alive(FUNCTION, function)) return CUDA_ERROR_INVALID_HANDLE;
    if (attribute >= MAX_ATTRIBUTES) return CUDA_ERROR_INVALID_VALUE;
    function->attributes[attribute] = value;
    return CUDA_SUCCESS;
}

API cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) {
    ENTER(IN_CONTEXT);
    (void)config;
    return alive(FUNCTION, function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// What cuLaunchKernel is given counts; pycuda still calls this before it.
API cuFuncSetBlockShape(CUfunction function, int x, int y, int z) {
    ENTER(IN_CONTEXT);
    if (x < 1 || y < 1 || z < 1) return CUDA_ERROR_INVALID_VALUE;
    return alive(FUNCTION, function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *number, CUfunction function, int threads, size_t shared) {
    ENTER(IN_CONTEXT);
    (void)shared;
    if (!alive(FUNCTION, function) || threads < 1) return CUDA_ERROR_INVALID_VALUE;
    *number = 1536 / threads;
    return CUDA_SUCCESS;
}

// ---- launches ----

int standin_kernels(const char *path) {
    if (!path) path = getenv("TRTPOST_STANDIN_KERNELS");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    host_launch = library ? (HostLaunch)dlsym(library, "trtpost_host_launch") : NULL;
    if (path && !host_launch) fprintf(stderr, "stand-in driver: no host build of the kernels: %s\n", dlerror());
    return host_launch ? 0 : 1;
}

CUresult run_kernel(const Work *work) {
    if (!alive(FUNCTION, work->kernel.function)) return lose(CUDA_ERROR_LAUNCH_FAILED);  // its module was unloaded
    COUNT(launches, 1);
    if (!host_launch && standin_kernels(NULL)) {
        fprintf(stderr, "stand-in driver: a kernel was launched, but nobody called standin_kernels\n");
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    int answer = host_launch(work->kernel.function->name, work->kernel.grid, work->kernel.block,
                             work->kernel.arguments, work->kernel.size);
    if (answer == 0) return CUDA_SUCCESS;
    COUNT(bad_launches, 1);
    if (answer == 1) return CUDA_ERROR_NOT_FOUND;
    return answer == 2 ? CUDA_ERROR_INVALID_VALUE : lose(CUDA_ERROR_LAUNCH_FAILED);
}

static int bad_shape(const Function *function, const Work *work, unsigned shared) {
    const unsigned *grid = work->kernel.grid, *block = work->kernel.block, *required = function->required;
    for (int i = 0; i < 3; i++)
        if (!grid[i] || !block[i] || (required[0] && block[i] != required[i])) return 1;
    if (grid[0] > 2147483647u || grid[1] > 65535 || grid[2] > 65535) return 1;
    if (block[0] > 1024 || block[1] > 1024 || block[2] > 64) return 1;
    if (block[0] * block[1] * block[2] > (unsigned)function->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK])
        return 1;
    return shared > (unsigned)function->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES];
}

// The packed arguments that `extra` describes; NULL where their size is not what the kernel takes.
static void *packed_arguments(const Function *function, void **extra) {
    void *buffer = NULL;
    size_t size = 0;
    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = extra[1];
        if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) size = *(size_t *)extra[1];
    }
    if (size == function->size) return buffer ? buffer : "";
    fprintf(stderr, "stand-in driver: %s takes %zu bytes of arguments, not %zu\n", function->name, function->size, size);
    return NULL;
}

API cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **parameters,
                   void **extra) {
    ENTER(IN_CONTEXT);
    if (!alive(FUNCTION, function)) return CUDA_ERROR_INVALID_HANDLE;
    char packed[MAX_PARAMETERS * 64] = {0};
    Work work = {.kind = KERNEL};
    work.kernel.function = function;
    memcpy(work.kernel.grid, (unsigned[3]){grid_x, grid_y, grid_z}, sizeof work.kernel.grid);
    memcpy(work.kernel.block, (unsigned[3]){block_x, block_y, block_z}, sizeof work.kernel.block);
    work.kernel.size = function->size;
    work.kernel.arguments = packed;
    if (parameters && !extra && function->size <= sizeof packed) {
        for (int i = 0; i < function->number; i++)
            memcpy(packed + function->parameters[i].offset, parameters[i], function->parameters[i].size);
    } else if (extra && !parameters) {
        work.kernel.arguments = packed_arguments(function, extra);
    } else if (function->number) {
        work.kernel.arguments = NULL;
    }
    if (!work.kernel.arguments || bad_shape(function, &work, shared)) {
        COUNT(bad_launches, 1);
        return CUDA_ERROR_INVALID_VALUE;
    }
    return submit(stream, &work);
}

API cuProfilerStart(void) {
    ENTER(IN_CONTEXT);
    return CUDA_SUCCESS;
}

API cuProfilerStop(void) {
    ENTER(IN_CONTEXT);
    return CUDA_SUCCESS;
}
