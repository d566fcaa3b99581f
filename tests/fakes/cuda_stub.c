/* A small libcuda.so.1 for tests. Nothing takes time here: each GPU has a clock of its own that
 * work moves on, so that what is measured is known. $EVERSTEP_FAKE_CUDA names a file of lines:
 *   gpus N             how many (default 1), at 0000:3b:00.0 and on
 *   slow GPU PERCENT   what its work takes more
 *   fail CALL CODE     a call that answers so
 *   free MIB           its free memory
 *   wrong GPU          its kernel computes different results */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID = 1, NO_DEVICE = 100, GPUS_MAX = 16, SMS = 132 };
typedef uint64_t u64;

static int gpus = 1, slow[GPUS_MAX], wrong[GPUS_MAX], fail_code;
static u64 free_mib = 80000;
static char fail_call[64];
static double clock_ms[GPUS_MAX];
static _Thread_local long allocated;
static _Thread_local int current = -1;

static void read_state(void) {
  const char *path = getenv("EVERSTEP_FAKE_CUDA");
  FILE *file = path ? fopen(path, "r") : NULL;
  char line[128];
  while (file && fgets(line, sizeof line, file)) {
    int gpu, percent;
    if (sscanf(line, "slow %d %d", &gpu, &percent) == 2) slow[gpu] = percent;
    if (sscanf(line, "wrong %d", &gpu) == 1) wrong[gpu] = 1;
    sscanf(line, "gpus %d", &gpus);
    sscanf(line, "free %lu", &free_mib);
    sscanf(line, "fail %63s %d", fail_call, &fail_code);
  }
  if (file) fclose(file);
}
#define CALL(name) \
  if (!strcmp(fail_call, name)) return fail_code
#define IN_CONTEXT(name) \
  CALL(name);            \
  if (current < 0) return 201

static void spend(double ms) { clock_ms[current] += ms * (100 + slow[current]) / 100; }

int cuInit(unsigned flags) {
  read_state();
  CALL("cuInit");
  return flags ? INVALID : OK;
}
int cuDriverGetVersion(int *version) {
  *version = 13000;
  return OK;
}
int cuGetErrorName(int code, const char **text) {
  *text = code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OF_THE_STUB";
  return OK;
}
int cuDeviceGetCount(int *count) {
  CALL("cuDeviceGetCount");
  *count = gpus;
  return gpus ? OK : NO_DEVICE;
}
int cuDeviceGet(int *device, int ordinal) {
  if (ordinal < 0 || ordinal >= gpus) return 101;
  *device = ordinal;
  return OK;
}
int cuDeviceGetPCIBusId(char *text, int room, int device) {
  snprintf(text, room, "0000:%02X:00.0", 0x3b + device);
  return OK;
}
int cuDeviceGetByPCIBusId(int *device, const char *text) {
  unsigned domain, bus;
  if (sscanf(text, "%x:%x:", &domain, &bus) != 2) return INVALID;
  *device = (int)bus - 0x3b;
  return *device >= 0 && *device < gpus ? OK : 101;
}
int cuDeviceGetName(char *text, int room, int device) {
  (void)device;
  snprintf(text, room, "NVIDIA H100 80GB HBM3");
  return OK;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  (void)device;
  *value = attribute == 16 ? SMS : 0;
  return OK;
}
int cuCtxCreate_v2(void **context, unsigned flags, int device) {
  CALL("cuCtxCreate_v2");
  (void)flags;
  *context = &clock_ms[device];
  current = device;
  return OK;
}
/* A context takes what was allocated in it along; the test frees all the same, and is told here. */
int cuCtxDestroy_v2(void *context) {
  (void)context;
  if (allocated && getenv("EVERSTEP_FAKE_CUDA_LEAK")) {
    FILE *file = fopen(getenv("EVERSTEP_FAKE_CUDA_LEAK"), "w");
    if (file) fprintf(file, "%ld\n", allocated), fclose(file);
  }
  current = -1;
  return OK;
}
int cuCtxSynchronize(void) {
  IN_CONTEXT("cuCtxSynchronize");
  return OK;
}
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
  IN_CONTEXT("cuMemGetInfo_v2");
  *free_bytes = free_mib << 20;
  *total = 80ull << 30;
  return OK;
}
int cuMemAlloc_v2(u64 *address, size_t size) {
  IN_CONTEXT("cuMemAlloc_v2");
  (void)size;
  *address = 0x7f0000000000 + ((u64)++allocated << 32);
  return OK;
}
int cuMemFree_v2(u64 address) {
  IN_CONTEXT("cuMemFree_v2");
  (void)address;
  allocated--;
  return OK;
}
int cuMemAllocHost_v2(void **address, size_t size) {
  IN_CONTEXT("cuMemAllocHost_v2");
  *address = malloc(size);
  return OK;
}
int cuMemFreeHost(void *address) {
  free(address);
  return OK;
}
int cuMemcpyDtoDAsync_v2(u64 to, u64 from, size_t size, void *stream) {
  IN_CONTEXT("cuMemcpyDtoDAsync_v2");
  if (!to || !from || stream) return INVALID;
  spend(2.0 * size / 3.0e9);
  return OK;
}
int cuMemcpyHtoDAsync_v2(u64 to, const void *from, size_t size, void *stream) {
  IN_CONTEXT("cuMemcpyHtoDAsync_v2");
  if (!to || !from || stream) return INVALID;
  spend(size / 5.0e7);
  return OK;
}
int cuMemcpyDtoHAsync_v2(void *to, u64 from, size_t size, void *stream) {
  IN_CONTEXT("cuMemcpyDtoHAsync_v2");
  if (!to || !from || stream) return INVALID;
  memset(to, 7, size);
  if (wrong[current]) ((char *)to)[size / 2] = 8;
  spend(size / 5.0e7);
  return OK;
}
int cuMemsetD8Async(u64 to, unsigned char value, size_t size, void *stream) {
  IN_CONTEXT("cuMemsetD8Async");
  (void)value, (void)size;
  return to && !stream ? OK : INVALID;
}
int cuModuleLoadData(void **module, const void *text) {
  IN_CONTEXT("cuModuleLoadData");
  if (!strstr(text, ".visible .entry fixed_work(")) return 218;
  *module = (void *)text;
  return OK;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
  IN_CONTEXT("cuModuleGetFunction");
  *function = module;
  return strcmp(name, "fixed_work") ? 500 : OK;
}
int cuModuleUnload(void *module) {
  (void)module;
  return OK;
}
int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   void *stream, void **parameters, void **extra) {
  IN_CONTEXT("cuLaunchKernel");
  u64 results = *(u64 *)parameters[0];
  unsigned turns = *(unsigned *)parameters[1];
  if (!function || shared_bytes || stream || extra || grid_y != 1 || grid_z != 1 || block_y != 1 ||
      block_z != 1 || !results)
    return INVALID;
  /* 128 multiply-adds for each turn and thread, 128 a clock and multiprocessor, at 1.7 GHz. */
  spend((double)turns * 128 * grid_x * block_x / (SMS * 128 * 1.7e6));
  return OK;
}
typedef struct {
  double at_ms;
} event;
int cuEventCreate(void **made, unsigned flags) {
  IN_CONTEXT("cuEventCreate");
  (void)flags;
  *made = calloc(1, sizeof(event));
  return OK;
}
int cuEventDestroy_v2(void *one) {
  free(one);
  return OK;
}
int cuEventRecord(void *one, void *stream) {
  IN_CONTEXT("cuEventRecord");
  (void)stream;
  ((event *)one)->at_ms = clock_ms[current];
  return OK;
}
int cuEventSynchronize(void *one) {
  IN_CONTEXT("cuEventSynchronize");
  return one ? OK : INVALID;
}
int cuEventElapsedTime(float *ms, void *start, void *end) {
  IN_CONTEXT("cuEventElapsedTime");
  *ms = (float)(((event *)end)->at_ms - ((event *)start)->at_ms);
  return OK;
}
