// Streams, events, and the work that streams carry out: at once, later (standin_defer), or recorded in a graph.
#include <stdlib.h>
#include <string.h>

#include "internal.h"

static Stream default_stream = {.handle = {.kind = STREAM, .alive = 1}};
static unsigned long long last_id;
static pthread_cond_t idle = PTHREAD_COND_INITIALIZER;

// ---- work ----

Work *copy_of(const Work *work) {
    Work *copy = malloc(sizeof *copy);
    *copy = *work;
    copy->next = NULL;
    if (work->kind == KERNEL) {
        copy->kernel.arguments = malloc(work->kernel.size + 1);
        memcpy(copy->kernel.arguments, work->kernel.arguments, work->kernel.size);
    }
    return copy;
}

void drop_work(Work *work) {
    if (work->kind == KERNEL) free(work->kernel.arguments);
    free(work);
}

static CUresult run_record(const Work *work) {
    Event *event = work->record.event;
    if (!event->handle.alive) return CUDA_SUCCESS;  // destroyed since: the real driver lets the work finish, too
    pthread_mutex_lock(&lock);
    clock_gettime(CLOCK_MONOTONIC, &event->time);
    if (event->done < work->record.number) event->done = work->record.number;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult run(const Work *work) {
    switch (work->kind) {
    case COPY: return run_copy(work);
    case SET: return run_set(work);
    case KERNEL: return run_kernel(work);
    case RECORD: return run_record(work);
    case HOST_FUNCTION:
        COUNT(host_functions, 1);
        work->host.function(work->host.data);
        return unless_lost(CUDA_SUCCESS);
    case CALLBACK:
        COUNT(host_functions, 1);
        work->host.callback(work->host.stream, CUDA_SUCCESS, work->host.data);
        return unless_lost(CUDA_SUCCESS);
    }
    return CUDA_ERROR_UNKNOWN;
}

int is_default(CUstream handle) {
    return handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
}

Stream *stream_of(CUstream handle) {
    if (is_default(handle)) return &default_stream;
    return alive(STREAM, handle) ? handle : NULL;
}

// Carries out what waits in a stream. Where another thread is at it already, waits for that, or with wait = 0 does not:
// the caller may hold something that the other thread's host function needs.
CUresult finish(Stream *stream, int wait) {
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    while (stream->busy && wait) pthread_cond_wait(&idle, &lock);
    if (!stream->busy) {
        stream->busy = 1;
        while (stream->first) {
            Work *work = stream->first;
            stream->first = work->next;
            if (!stream->first) stream->last = &stream->first;
            pthread_mutex_unlock(&lock);
            CUresult one = run(work);
            if (one && !result) result = one;
            drop_work(work);
            pthread_mutex_lock(&lock);
        }
        stream->busy = 0;
        pthread_cond_broadcast(&idle);
    }
    pthread_mutex_unlock(&lock);
    return unless_lost(result);
}

// The next stream with work waiting that no other thread is at.
static Stream *next_waiting(int wait) {
    Stream *found = NULL;
    pthread_mutex_lock(&lock);
    for (Handle *handle = handles(STREAM); handle && !found; handle = handle->next)
        if (((Stream *)handle)->first && (wait || !((Stream *)handle)->busy)) found = (Stream *)handle;
    pthread_mutex_unlock(&lock);
    return found;
}

CUresult finish_all(int wait) {
    CUresult result = CUDA_SUCCESS;
    for (Stream *stream; (stream = next_waiting(wait));) {
        CUresult one = finish(stream, wait);
        if (one && !result) result = one;
    }
    return unless_lost(result);
}

CUresult run_now(const Work *work) {
    pthread_mutex_lock(&lock);
    CUresult refused = check_default_stream();
    pthread_mutex_unlock(&lock);
    if (refused) return refused;
    refused = finish_all(1);
    return refused ? refused : run(work);
}

CUresult submit(CUstream handle, const Work *work) {
    if (is_default(handle)) return run_now(work);
    Stream *stream = stream_of(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&lock);
    if (stream->capture) {
        CUresult broken = stream->capture_broken ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
        if (!broken) record_in_graph(stream, work);
        pthread_mutex_unlock(&lock);
        return broken;
    }
    Work numbered = *work;
    if (work->kind == RECORD) {
        numbered.record.number = ++work->record.event->asked;
        numbered.record.event->stream = stream;
        numbered.record.event->captured = 0;
    }
    int wait = settings.deferring || stream->first;
    if (wait) {
        *stream->last = copy_of(&numbered);
        stream->last = &(*stream->last)->next;
    }
    pthread_mutex_unlock(&lock);
    return wait ? CUDA_SUCCESS : run(&numbered);
}

// ---- streams ----

static CUresult create(CUstream *handle, unsigned flags, int priority) {
    if (flags & ~(unsigned)CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    Stream *stream = new_handle(STREAM, sizeof *stream);
    stream->flags = flags;
    stream->priority = priority;
    stream->id = __atomic_add_fetch(&last_id, 1, __ATOMIC_RELAXED);
    stream->last = &stream->first;
    *handle = stream;
    return CUDA_SUCCESS;
}

API cuStreamCreate(CUstream *handle, unsigned flags) {
    ENTER(IN_CONTEXT);
    return create(handle, flags, 0);
}

API cuStreamCreateWithPriority(CUstream *handle, unsigned flags, int priority) {
    ENTER(IN_CONTEXT);
    return create(handle, flags, priority);
}

API cuStreamDestroy_v2(CUstream handle) {
    ENTER(IN_CONTEXT | WHEN_LOST);
    if (!is_default(handle) && handle->handle.alive) {
        finish(handle, 0);
        free_capture(handle);
    }
    return unless_lost(end_handle(STREAM, handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}

API cuStreamGetFlags(CUstream handle, unsigned *flags) {
    ENTER(IN_CONTEXT);
    Stream *stream = stream_of(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    *flags = stream->flags;
    return CUDA_SUCCESS;
}

API cuStreamGetPriority(CUstream handle, int *priority) {
    ENTER(IN_CONTEXT);
    Stream *stream = stream_of(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    *priority = stream->priority;
    return CUDA_SUCCESS;
}

API cuStreamGetId(CUstream handle, unsigned long long *id) {
    ENTER(IN_CONTEXT);
    Stream *stream = stream_of(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    *id = stream->id;
    return CUDA_SUCCESS;
}

#undef cuStreamGetCtx
API cuStreamGetCtx(CUstream handle, CUcontext *context) {
    ENTER(IN_CONTEXT);
    if (!stream_of(handle)) return CUDA_ERROR_INVALID_HANDLE;
    *context = current_context();
    return CUDA_SUCCESS;
}

// Waits for the work of a stream, which a capturing one does not allow.
static CUresult synchronize(CUstream handle) {
    Stream *stream = stream_of(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&lock);
    CUresult refused = is_default(handle) ? check_default_stream() : refuse_while_capturing(stream);
    pthread_mutex_unlock(&lock);
    if (refused) return refused;
    return is_default(handle) ? finish_all(1) : finish(stream, 1);
}

API cuStreamSynchronize(CUstream handle) {
    ENTER(IN_CONTEXT | UNSAFE);
    return synchronize(handle);
}

API cuStreamQuery(CUstream handle) {
    ENTER(IN_CONTEXT | UNSAFE);
    return synchronize(handle);
}

API cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags) {
    ENTER(IN_CONTEXT);
    (void)flags;
    Stream *stream = stream_of(handle);
    if (!stream || !alive(EVENT, event)) return CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&lock);
    CUresult result = CUDA_SUCCESS;
    Stream *other = event->done < event->asked ? event->stream : NULL;
    if (event->captured && event->stream != stream) {
        result = CUDA_ERROR_NOT_SUPPORTED;  // a capture that forks into other streams: the stand-in has none
    } else if (stream->capture && !event->captured) {
        break_capture(stream);
        result = CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    pthread_mutex_unlock(&lock);
    return result || !other || other == stream ? result : finish(other, 1);
}

API cuLaunchHostFunc(CUstream handle, CUhostFn function, void *data) {
    ENTER(IN_CONTEXT);
    Work work = {.kind = HOST_FUNCTION};
    work.host.function = function;
    work.host.data = data;
    return submit(handle, &work);
}

API cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void *data, unsigned flags) {
    ENTER(IN_CONTEXT);
    Stream *stream = stream_of(handle);
    if (!stream || flags) return stream ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&lock);
    CUresult refused = refuse_while_capturing(stream);  // callbacks cannot be captured
    pthread_mutex_unlock(&lock);
    if (refused) return refused;
    Work work = {.kind = CALLBACK};
    work.host.callback = callback;
    work.host.stream = handle;
    work.host.data = data;
    return submit(handle, &work);
}

API cuStreamAttachMemAsync(CUstream handle, CUdeviceptr address, size_t size, unsigned flags) {
    ENTER(IN_CONTEXT);
    (void)handle, (void)address, (void)size, (void)flags;
    return CUDA_ERROR_NOT_SUPPORTED;  // managed memory
}

// ---- events ----

API cuEventCreate(CUevent *handle, unsigned flags) {
    ENTER(IN_CONTEXT);
    Event *event = new_handle(EVENT, sizeof *event);
    event->flags = flags;
    *handle = event;
    return CUDA_SUCCESS;
}

API cuEventDestroy_v2(CUevent event) {
    ENTER(IN_CONTEXT | WHEN_LOST);
    return unless_lost(end_handle(EVENT, event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}

static CUresult record(CUevent event, CUstream handle, int external) {
    Stream *stream = stream_of(handle);
    if (!stream || !alive(EVENT, event)) return CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&lock);
    int capturing = stream->capture != NULL, broken = stream->capture_broken;
    // In a capture, a plain record only marks a place for other streams to depend on: nothing of it is in the graph.
    int mark = capturing && !broken && !external;
    if (mark) {
        event->captured = 1;
        event->stream = stream;
    }
    pthread_mutex_unlock(&lock);
    if (mark) return CUDA_SUCCESS;
    if (external && !capturing) return CUDA_ERROR_INVALID_VALUE;
    Work work = {.kind = RECORD};
    work.record.event = event;
    return submit(handle, &work);
}

API cuEventRecord(CUevent event, CUstream handle) {
    ENTER(IN_CONTEXT);
    return record(event, handle, 0);
}

API cuEventRecordWithFlags(CUevent event, CUstream handle, unsigned flags) {
    ENTER(IN_CONTEXT);
    if (flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
    return record(event, handle, (flags & CU_EVENT_RECORD_EXTERNAL) != 0);
}

static CUresult wait_for(CUevent event) {
    if (!alive(EVENT, event)) return CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&lock);
    CUresult refused = CUDA_SUCCESS;
    if (event->captured) {
        if (event->stream->capture) break_capture(event->stream);
        refused = CUDA_ERROR_CAPTURED_EVENT;
    }
    Stream *stream = event->done < event->asked ? event->stream : NULL;
    pthread_mutex_unlock(&lock);
    return refused || !stream ? refused : finish(stream, 1);
}

API cuEventQuery(CUevent event) {
    ENTER(IN_CONTEXT | UNSAFE);
    return wait_for(event);
}

API cuEventSynchronize(CUevent event) {
    ENTER(IN_CONTEXT | UNSAFE);
    return wait_for(event);
}

static CUresult elapsed(float *milliseconds, CUevent start, CUevent end) {
    if (!alive(EVENT, start) || !alive(EVENT, end)) return CUDA_ERROR_INVALID_HANDLE;
    if ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    if (start->captured || end->captured) {
        result = CUDA_ERROR_CAPTURED_EVENT;
    } else if (!start->time.tv_sec || !end->time.tv_sec) {
        result = start->asked && end->asked ? CUDA_ERROR_NOT_READY : CUDA_ERROR_INVALID_HANDLE;
    } else if (start->done < start->asked || end->done < end->asked) {
        result = CUDA_ERROR_NOT_READY;
    } else {
        double seconds = (double)(end->time.tv_sec - start->time.tv_sec);
        *milliseconds = (float)(seconds * 1e3 + (double)(end->time.tv_nsec - start->time.tv_nsec) * 1e-6);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

#undef cuEventElapsedTime
API cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    ENTER(IN_CONTEXT);
    return elapsed(milliseconds, start, end);
}

API cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end) {
    ENTER(IN_CONTEXT);
    return elapsed(milliseconds, start, end);
}
