// Device and page-locked memory, copies and fills.
//
// Blocks live in one reserved range of addresses that are handed out once and never again: what is used after it was
// freed, or runs far past its end, meets pages without access. The rest of a block's last page holds a known byte, so
// that a write just past the end shows when the block is freed.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "internal.h"

#define PAGE ((size_t)4096)
#define ARENA ((size_t)16 << 40)
#define FRESH 0xA5  // new memory is never zero
#define TAIL 0x5A

static Block *blocks;
static char *arena;
static size_t arena_used;
static unsigned long long last_id;

// ---- blocks ----

static void count_block(const Block *block, int sign) {
    unsigned long long one = (unsigned long long)(long long)sign, size = one * block->size;
    if (block->type == CU_MEMORYTYPE_DEVICE) {
        counts.device_blocks += one;
        counts.device_bytes += size;
    } else {
        counts.host_blocks += one;
        counts.host_bytes += size;
    }
}

static void add_block(Block *block) {
    block->id = ++last_id;
    block->next = blocks;
    blocks = block;
    count_block(block, 1);
}

// Under the lock.
static char *take_pages(size_t span) {
    if (!arena) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        arena = mmap(NULL, ARENA, PROT_NONE, flags, -1, 0);
        if (arena == MAP_FAILED) arena = NULL;
    }
    if (!arena || arena_used + span + PAGE > ARENA) return NULL;
    char *address = arena + arena_used;
    if (mprotect(address, span, PROT_READ | PROT_WRITE)) return NULL;
    arena_used += span + PAGE;  // the page between two blocks stays without access
    return address;
}

static void *allocate(size_t size, CUmemorytype type) {
    size_t span = (size + PAGE - 1) & ~(PAGE - 1);
    char *address = NULL;
    pthread_mutex_lock(&lock);
    if (type == CU_MEMORYTYPE_HOST || (size <= settings.memory && counts.device_bytes <= settings.memory - size))
        address = take_pages(span);
    if (address) {
        Block *block = calloc(1, sizeof *block);
        block->address = address;
        block->size = size;
        block->span = span;
        block->type = type;
        add_block(block);
    }
    pthread_mutex_unlock(&lock);
    if (address) {
        memset(address, FRESH, size);
        memset(address + size, TAIL, span - size);
    }
    return address;
}

static CUresult release(void *address, CUmemorytype type, int registered) {
    if (!address) return unless_lost(CUDA_SUCCESS);
    pthread_mutex_lock(&lock);
    Block **place = &blocks;
    while (*place && !((*place)->address == address && (*place)->type == type && (*place)->registered == registered))
        place = &(*place)->next;
    Block *block = *place;
    if (block) {
        *place = block->next;
        count_block(block, -1);
        if (!registered) {
            for (size_t i = block->size; i < block->span; i++) {
                if ((unsigned char)block->address[i] == TAIL) continue;
                counts.overruns++;
                fprintf(stderr, "stand-in driver: something wrote %zu bytes past the end of a block of %zu bytes\n",
                        i - block->size + 1, block->size);
                break;
            }
            madvise(block->address, block->span, MADV_DONTNEED);
            mprotect(block->address, block->span, PROT_NONE);
        }
    } else {
        counts.bad_frees++;
    }
    pthread_mutex_unlock(&lock);
    if (!block) return unless_lost(CUDA_ERROR_INVALID_VALUE);
    free(block);
    return unless_lost(CUDA_SUCCESS);
}

int find_block(const void *address, size_t size, Block *found) {
    const char *start = address;
    pthread_mutex_lock(&lock);
    Block *block = blocks;
    while (block && !(start >= block->address && start < block->address + block->size)) block = block->next;
    int inside = block && size <= block->size - (size_t)(start - block->address);
    if (inside && found) *found = *block;
    pthread_mutex_unlock(&lock);
    return inside;
}

int standin_kind(const void *address, size_t size) {
    Block block;
    if (!find_block(address, size, &block)) return 0;
    return block.type == CU_MEMORYTYPE_DEVICE ? 2 : 1;
}

CUresult standin_access(const void *address, size_t size) {
    if (!size || standin_kind(address, size) == 2) return CUDA_SUCCESS;
    COUNT(bad_accesses, 1);
    return lose(CUDA_ERROR_ILLEGAL_ADDRESS);
}

// Memory of the program itself may be used freely; ours only while it is allocated.
static int is_dead(const void *address, size_t size) {
    Block block;
    int ours = arena && (const char *)address >= arena && (const char *)address < arena + ARENA;
    return ours && !find_block(address, size, &block);
}

// ---- allocation ----

API cuMemGetInfo_v2(size_t *available, size_t *total) {
    ENTER(IN_CONTEXT);
    pthread_mutex_lock(&lock);
    *total = settings.memory;
    *available = settings.memory > counts.device_bytes ? settings.memory - counts.device_bytes : 0;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

API cuMemAlloc_v2(CUdeviceptr *address, size_t size) {
    ENTER(IN_CONTEXT | UNSAFE);
    if (!size) return CUDA_ERROR_INVALID_VALUE;
    *address = (CUdeviceptr)(uintptr_t)allocate(size, CU_MEMORYTYPE_DEVICE);
    return *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned element) {
    ENTER(IN_CONTEXT | UNSAFE);
    if (!width || !height || (element != 4 && element != 8 && element != 16)) return CUDA_ERROR_INVALID_VALUE;
    *pitch = (width + 511) & ~(size_t)511;
    *address = (CUdeviceptr)(uintptr_t)allocate(*pitch * height, CU_MEMORYTYPE_DEVICE);
    return *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API cuMemFree_v2(CUdeviceptr address) {
    ENTER(IN_CONTEXT | UNSAFE | WHEN_LOST);
    finish_all(0);  // the real one waits for the device
    return release(POINTER(address), CU_MEMORYTYPE_DEVICE, 0);
}

static CUresult allocate_host(void **address, size_t size) {
    if (!size) return CUDA_ERROR_INVALID_VALUE;
    *address = allocate(size, CU_MEMORYTYPE_HOST);
    return *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API cuMemHostAlloc(void **address, size_t size, unsigned flags) {
    ENTER(IN_CONTEXT | UNSAFE);
    (void)flags;
    return allocate_host(address, size);
}

API cuMemAllocHost_v2(void **address, size_t size) {
    ENTER(IN_CONTEXT | UNSAFE);
    return allocate_host(address, size);
}

API cuMemFreeHost(void *address) {
    ENTER(IN_CONTEXT | UNSAFE | WHEN_LOST);
    finish_all(0);
    return release(address, CU_MEMORYTYPE_HOST, 0);
}

API cuMemHostRegister_v2(void *address, size_t size, unsigned flags) {
    ENTER(IN_CONTEXT | UNSAFE);
    (void)flags;
    if (!address || !size) return CUDA_ERROR_INVALID_VALUE;
    if (find_block(address, 1, NULL)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    Block *block = calloc(1, sizeof *block);
    block->address = address;
    block->size = size;
    block->type = CU_MEMORYTYPE_HOST;
    block->registered = 1;
    pthread_mutex_lock(&lock);
    add_block(block);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

API cuMemHostUnregister(void *address) {
    ENTER(IN_CONTEXT | UNSAFE | WHEN_LOST);
    return release(address, CU_MEMORYTYPE_HOST, 1);
}

API cuMemHostGetDevicePointer_v2(CUdeviceptr *device_address, void *address, unsigned flags) {
    ENTER(IN_CONTEXT);
    (void)flags;
    if (standin_kind(address, 1) != 1) return CUDA_ERROR_INVALID_VALUE;
    *device_address = (CUdeviceptr)(uintptr_t)address;
    return CUDA_SUCCESS;
}

API cuMemHostGetFlags(unsigned *flags, void *address) {
    ENTER(IN_CONTEXT);
    if (standin_kind(address, 1) != 1) return CUDA_ERROR_INVALID_VALUE;
    *flags = 0;
    return CUDA_SUCCESS;
}

API cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *size, CUdeviceptr address) {
    ENTER(IN_CONTEXT);
    Block block;
    if (!find_block(POINTER(address), 1, &block)) return CUDA_ERROR_NOT_FOUND;
    if (start) *start = (CUdeviceptr)(uintptr_t)block.address;
    if (size) *size = block.size;
    return CUDA_SUCCESS;
}

API cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr address) {
    ENTER(IN_CONTEXT);
    Block block;
    if (!find_block(POINTER(address), 1, &block)) return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: *(CUcontext *)value = current_context(); break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *(unsigned *)value = block.type; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *(CUdeviceptr *)value = address; break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *(void **)value = block.type == CU_MEMORYTYPE_HOST ? POINTER(address) : NULL;
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(unsigned *)value = 0; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)value = 0; break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: *(unsigned long long *)value = block.id; break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(void **)value = block.address; break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)value = block.size; break;
    case CU_POINTER_ATTRIBUTE_MAPPED: *(int *)value = 1; break;
    default: return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

// ---- copies ----

static size_t extent(size_t width, size_t height, size_t pitch) {
    return width && height ? (height - 1) * pitch + width : 0;
}

static CUresult check_side(const void *address, size_t size, Place place) {
    if (!size) return CUDA_SUCCESS;
    if (place == ON_DEVICE) {
        // Page-locked memory is mapped at the same address, so a copy on the device may touch it.
        return standin_kind(address, size) ? CUDA_SUCCESS : standin_access(address, size);
    }
    if (!address) return CUDA_ERROR_INVALID_VALUE;
    if (!is_dead(address, size)) return CUDA_SUCCESS;
    COUNT(bad_accesses, 1);
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult check_copy(const Work *work) {
    size_t from_size = extent(work->copy.width, work->copy.height, work->copy.from_pitch);
    size_t to_size = extent(work->copy.width, work->copy.height, work->copy.to_pitch);
    CUresult wrong = check_side(work->copy.from, from_size, work->copy.from_place);
    return wrong ? wrong : check_side(work->copy.to, to_size, work->copy.to_place);
}

CUresult run_copy(const Work *work) {
    CUresult wrong = check_copy(work);  // again: a block may have been freed since the work was submitted
    if (wrong) return wrong;
    size_t size = work->copy.width * work->copy.height;
    for (size_t y = 0; y < work->copy.height; y++)
        memmove(work->copy.to + y * work->copy.to_pitch, work->copy.from + y * work->copy.from_pitch, work->copy.width);
    int from_device = standin_kind(work->copy.from, 1) == 2, to_device = standin_kind(work->copy.to, 1) == 2;
    if (from_device && to_device) {
        COUNT(copies_on_device, 1);
    } else if (to_device) {
        COUNT(copies_to_device, 1);
        COUNT(bytes_to_device, size);
    } else if (from_device) {
        COUNT(copies_to_host, 1);
        COUNT(bytes_to_host, size);
    }
    return CUDA_SUCCESS;
}

static Work copy_work(void *to, Place to_place, const void *from, Place from_place, size_t size) {
    Work work = {.kind = COPY};
    work.copy.to = to;
    work.copy.to_place = to_place;
    work.copy.from = from;
    work.copy.from_place = from_place;
    work.copy.width = size;
    work.copy.height = 1;
    return work;
}

static CUresult copy_async(CUstream stream, Work work) {
    CUresult wrong = check_copy(&work);
    if (wrong) return wrong;
    int pageable = !standin_kind(work.copy.from, 1) || !standin_kind(work.copy.to, 1);
    if (pageable && work.copy.width) COUNT(pageable_copies, 1);
    return submit(stream, &work);
}

static CUresult copy_now(Work work) {
    CUresult wrong = check_copy(&work);
    return wrong ? wrong : run_now(&work);
}

#define COPY_FUNCTION(name, ToType, to_place, FromType, from_place)                                \
    API name(ToType to, FromType from, size_t size) {                                              \
        ENTER(IN_CONTEXT | UNSAFE);                                                                \
        return copy_now(copy_work(POINTER(to), to_place, POINTER(from), from_place, size));        \
    }
#define COPY_ASYNC_FUNCTION(name, ToType, to_place, FromType, from_place)                          \
    API name(ToType to, FromType from, size_t size, CUstream stream) {                             \
        ENTER(IN_CONTEXT);                                                                         \
        return copy_async(stream, copy_work(POINTER(to), to_place, POINTER(from), from_place, size)); \
    }

COPY_FUNCTION(cuMemcpy, CUdeviceptr, ANYWHERE, CUdeviceptr, ANYWHERE)
COPY_FUNCTION(cuMemcpyHtoD_v2, CUdeviceptr, ON_DEVICE, const void *, ON_HOST)
COPY_FUNCTION(cuMemcpyDtoH_v2, void *, ON_HOST, CUdeviceptr, ON_DEVICE)
COPY_FUNCTION(cuMemcpyDtoD_v2, CUdeviceptr, ON_DEVICE, CUdeviceptr, ON_DEVICE)
COPY_ASYNC_FUNCTION(cuMemcpyAsync, CUdeviceptr, ANYWHERE, CUdeviceptr, ANYWHERE)
COPY_ASYNC_FUNCTION(cuMemcpyHtoDAsync_v2, CUdeviceptr, ON_DEVICE, const void *, ON_HOST)
COPY_ASYNC_FUNCTION(cuMemcpyDtoHAsync_v2, void *, ON_HOST, CUdeviceptr, ON_DEVICE)
COPY_ASYNC_FUNCTION(cuMemcpyDtoDAsync_v2, CUdeviceptr, ON_DEVICE, CUdeviceptr, ON_DEVICE)

static CUresult work_of_2d(const CUDA_MEMCPY2D *copy, Work *work) {
    if (copy->dstMemoryType == CU_MEMORYTYPE_ARRAY || copy->srcMemoryType == CU_MEMORYTYPE_ARRAY)
        return CUDA_ERROR_NOT_SUPPORTED;
    int to_host = copy->dstMemoryType == CU_MEMORYTYPE_HOST, from_host = copy->srcMemoryType == CU_MEMORYTYPE_HOST;
    *work = (Work){.kind = COPY};
    work->copy.to = (to_host ? (char *)copy->dstHost : POINTER(copy->dstDevice));
    work->copy.from = (from_host ? (const char *)copy->srcHost : POINTER(copy->srcDevice));
    work->copy.to += copy->dstY * copy->dstPitch + copy->dstXInBytes;
    work->copy.from += copy->srcY * copy->srcPitch + copy->srcXInBytes;
    work->copy.to_place = to_host ? ON_HOST : ON_DEVICE;
    work->copy.from_place = from_host ? ON_HOST : ON_DEVICE;
    work->copy.width = copy->WidthInBytes;
    work->copy.height = copy->Height;
    work->copy.to_pitch = copy->dstPitch;
    work->copy.from_pitch = copy->srcPitch;
    return CUDA_SUCCESS;
}

API cuMemcpy2D_v2(const CUDA_MEMCPY2D *copy) {
    ENTER(IN_CONTEXT | UNSAFE);
    Work work;
    CUresult wrong = work_of_2d(copy, &work);
    return wrong ? wrong : copy_now(work);
}

API cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *copy) {
    ENTER(IN_CONTEXT | UNSAFE);
    Work work;
    CUresult wrong = work_of_2d(copy, &work);
    return wrong ? wrong : copy_now(work);
}

API cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream) {
    ENTER(IN_CONTEXT);
    Work work;
    CUresult wrong = work_of_2d(copy, &work);
    return wrong ? wrong : copy_async(stream, work);
}

// ---- fills ----

CUresult check_set(const Work *work) {
    size_t width = work->set.width * work->set.element;
    if ((uintptr_t)work->set.to % work->set.element) return CUDA_ERROR_INVALID_VALUE;
    return check_side(work->set.to, extent(width, work->set.height, work->set.pitch), ON_DEVICE);
}

CUresult run_set(const Work *work) {
    CUresult wrong = check_set(work);
    if (wrong) return wrong;
    for (size_t y = 0; y < work->set.height; y++) {
        char *row = work->set.to + y * work->set.pitch;
        for (size_t x = 0; x < work->set.width; x++)
            memcpy(row + x * work->set.element, &work->set.value, work->set.element);  // little endian
    }
    COUNT(memsets, 1);
    return CUDA_SUCCESS;
}

static Work set_work(CUdeviceptr to, size_t pitch, unsigned value, size_t element, size_t width, size_t height) {
    Work work = {.kind = SET};
    work.set.to = POINTER(to);
    work.set.pitch = pitch;
    work.set.value = value;
    work.set.element = element;
    work.set.width = width;
    work.set.height = height;
    return work;
}

static CUresult set_now(Work work) {
    CUresult wrong = check_set(&work);
    return wrong ? wrong : run_now(&work);
}

static CUresult set_async(CUstream stream, Work work) {
    CUresult wrong = check_set(&work);
    return wrong ? wrong : submit(stream, &work);
}

#define SET_FUNCTIONS(bits, Type)                                                                             \
    API cuMemsetD##bits##_v2(CUdeviceptr to, Type value, size_t number) {                                     \
        ENTER(IN_CONTEXT | UNSAFE);                                                                           \
        return set_now(set_work(to, 0, value, sizeof(Type), number, 1));                                      \
    }                                                                                                         \
    API cuMemsetD##bits##Async(CUdeviceptr to, Type value, size_t number, CUstream stream) {                  \
        ENTER(IN_CONTEXT);                                                                                    \
        return set_async(stream, set_work(to, 0, value, sizeof(Type), number, 1));                            \
    }                                                                                                         \
    API cuMemsetD2D##bits##_v2(CUdeviceptr to, size_t pitch, Type value, size_t width, size_t height) {       \
        ENTER(IN_CONTEXT | UNSAFE);                                                                           \
        return set_now(set_work(to, pitch, value, sizeof(Type), width, height));                              \
    }                                                                                                         \
    API cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, Type value, size_t width, size_t height,       \
                                 CUstream stream) {                                                           \
        ENTER(IN_CONTEXT);                                                                                    \
        return set_async(stream, set_work(to, pitch, value, sizeof(Type), width, height));                    \
    }

SET_FUNCTIONS(8, unsigned char)
SET_FUNCTIONS(16, unsigned short)
SET_FUNCTIONS(32, unsigned int)
