// Entry points that pycuda links to and nothing here needs, and how a CUDA runtime in the same process finds entry points.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

// Their parameters don't matter: no one reads them.
#define UNSUPPORTED(name)                                   \
    EXPORT CUresult unsupported_##name(void) __asm__(#name); \
    CUresult unsupported_##name(void) {                     \
        return CUDA_ERROR_NOT_SUPPORTED;                    \
    }

UNSUPPORTED(cuArray3DCreate_v2)
UNSUPPORTED(cuArray3DGetDescriptor_v2)
UNSUPPORTED(cuArrayCreate_v2)
UNSUPPORTED(cuArrayDestroy)
UNSUPPORTED(cuArrayGetDescriptor_v2)
UNSUPPORTED(cuCtxDisablePeerAccess)
UNSUPPORTED(cuCtxEnablePeerAccess)
UNSUPPORTED(cuCtxGetSharedMemConfig)
UNSUPPORTED(cuCtxSetSharedMemConfig)
UNSUPPORTED(cuFuncSetSharedMemConfig)
UNSUPPORTED(cuFuncSetSharedSize)
UNSUPPORTED(cuIpcCloseMemHandle)
UNSUPPORTED(cuIpcGetEventHandle)
UNSUPPORTED(cuIpcGetMemHandle)
UNSUPPORTED(cuIpcOpenEventHandle)
UNSUPPORTED(cuIpcOpenMemHandle_v2)
UNSUPPORTED(cuLaunch)
UNSUPPORTED(cuLaunchGrid)
UNSUPPORTED(cuLaunchGridAsync)
UNSUPPORTED(cuLinkAddData_v2)
UNSUPPORTED(cuLinkAddFile_v2)
UNSUPPORTED(cuLinkComplete)
UNSUPPORTED(cuLinkCreate_v2)
UNSUPPORTED(cuLinkDestroy)
UNSUPPORTED(cuMemAllocManaged)
UNSUPPORTED(cuMemcpy3DAsync_v2)
UNSUPPORTED(cuMemcpy3DPeer)
UNSUPPORTED(cuMemcpy3DPeerAsync)
UNSUPPORTED(cuMemcpy3D_v2)
UNSUPPORTED(cuMemcpyAtoA_v2)
UNSUPPORTED(cuMemcpyAtoD_v2)
UNSUPPORTED(cuMemcpyAtoH_v2)
UNSUPPORTED(cuMemcpyDtoA_v2)
UNSUPPORTED(cuMemcpyHtoA_v2)
UNSUPPORTED(cuMemcpyPeer)
UNSUPPORTED(cuMemcpyPeerAsync)
UNSUPPORTED(cuModuleGetSurfRef)
UNSUPPORTED(cuModuleGetTexRef)
UNSUPPORTED(cuParamSetSize)
UNSUPPORTED(cuParamSetTexRef)
UNSUPPORTED(cuParamSetf)
UNSUPPORTED(cuParamSeti)
UNSUPPORTED(cuParamSetv)
UNSUPPORTED(cuPointerSetAttribute)
UNSUPPORTED(cuProfilerInitialize)
UNSUPPORTED(cuSurfRefGetArray)
UNSUPPORTED(cuSurfRefSetArray)
UNSUPPORTED(cuTexRefCreate)
UNSUPPORTED(cuTexRefDestroy)
UNSUPPORTED(cuTexRefGetAddressMode)
UNSUPPORTED(cuTexRefGetAddress_v2)
UNSUPPORTED(cuTexRefGetArray)
UNSUPPORTED(cuTexRefGetFilterMode)
UNSUPPORTED(cuTexRefGetFlags)
UNSUPPORTED(cuTexRefGetFormat)
UNSUPPORTED(cuTexRefSetAddress2D_v3)
UNSUPPORTED(cuTexRefSetAddressMode)
UNSUPPORTED(cuTexRefSetAddress_v2)
UNSUPPORTED(cuTexRefSetArray)
UNSUPPORTED(cuTexRefSetFilterMode)
UNSUPPORTED(cuTexRefSetFlags)
UNSUPPORTED(cuTexRefSetFormat)

// The newest version of an entry point that is here; a CUDA runtime treats what is missing as an old driver.
API cuGetProcAddress_v2(const char *name, void **address, int version, cuuint64_t flags,
                        CUdriverProcAddressQueryResult *status) {
    (void)version, (void)flags;
    static void *self;
    Dl_info info;
    if (!self && dladdr((void *)cuGetProcAddress_v2, &info)) self = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    *address = NULL;
    for (int i = 4; i >= 1 && !*address; i--) {
        char versioned[128];
        snprintf(versioned, sizeof versioned, i > 1 ? "%s_v%d" : "%s", name, i);
        *address = dlsym(self, versioned);
    }
    if (status) *status = *address ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *address ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

// The undocumented tables that a CUDA runtime asks for.
API cuGetExportTable(const void **table, const CUuuid *id) {
    (void)id;
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}
