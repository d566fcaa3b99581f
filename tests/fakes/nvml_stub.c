/* A small libnvidia-ml.so.1 for tests. Its state is an mmapped file ($EVERSTEP_FAKE_NVML) that the
 * test writes; tests/fakes/nvml.py knows the layout. Structs as in nvml.h of driver 570. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NO_DRIVER = 9, LOST = 15 };
typedef int result;
typedef unsigned long long u64;

struct gpu {
  uint32_t temperature, power_mw, busy, lost, remap_pending, remap_failed, recovery, unused;
  uint64_t memory_total, memory_used, ecc_corrected, ecc_uncorrected;
};
struct state {
  uint32_t gpus, hang;
  struct gpu gpu[16];
};
static volatile struct state *state;

/* Every call passes here: a hung driver keeps all of them. */
static result find(void *handle, int *index) {
  if (!state) return UNINITIALIZED;
  while (state->hang) usleep(10000);
  *index = (int)((intptr_t)handle - 0x1000);
  if (*index < 0 || *index >= (int)state->gpus) return INVALID;
  return state->gpu[*index].lost ? LOST : OK;
}
#define GPU(handle)                       \
  int i;                                  \
  result answer = find(handle, &i);       \
  if (answer != OK) return answer;        \
  volatile struct gpu *gpu = &state->gpu[i]; \
  (void)gpu

result nvmlInitWithFlags(unsigned flags) {
  const char *path = getenv("EVERSTEP_FAKE_NVML");
  int fd = path ? open(path, O_RDWR) : -1;
  (void)flags;
  if (fd < 0) return NO_DRIVER;
  void *memory = mmap(0, sizeof(struct state), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) return NO_DRIVER;
  state = memory;
  return OK;
}
result nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
result nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(result r) {
  return r == LOST ? "GPU is lost" : r == NO_DRIVER ? "Driver Not Loaded" : "fake error";
}
result nvmlSystemGetDriverVersion(char *text, unsigned n) {
  snprintf(text, n, "570.00");
  return OK;
}
result nvmlDeviceGetCount_v2(unsigned *n) {
  *n = state->gpus;
  return OK;
}
result nvmlDeviceGetHandleByIndex_v2(unsigned i, void **handle) {
  int index;
  *handle = (void *)(intptr_t)(0x1000 + i);
  return find(*handle, &index);
}
result nvmlDeviceGetName(void *h, char *text, unsigned n) {
  GPU(h);
  snprintf(text, n, "NVIDIA H100 80GB HBM3");
  return OK;
}
result nvmlDeviceGetUUID(void *h, char *text, unsigned n) {
  GPU(h);
  snprintf(text, n, "GPU-00000000-0000-0000-0000-%012d", i);
  return OK;
}
typedef struct {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char bus_id[32];
} pci_info;
result nvmlDeviceGetPciInfo_v3(void *h, pci_info *info) {
  GPU(h);
  memset(info, 0, sizeof *info);
  snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", 0x3b + i);
  return OK;
}
typedef struct {
  u64 total, free, used;
} memory_info;
result nvmlDeviceGetMemoryInfo(void *h, memory_info *info) {
  GPU(h);
  info->total = gpu->memory_total;
  info->used = gpu->memory_used;
  info->free = info->total - info->used;
  return OK;
}
result nvmlDeviceGetTemperature(void *h, int sensor, unsigned *value) {
  GPU(h);
  (void)sensor;
  *value = gpu->temperature;
  return OK;
}
result nvmlDeviceGetPowerUsage(void *h, unsigned *value) {
  GPU(h);
  *value = gpu->power_mw;
  return OK;
}
typedef struct {
  unsigned gpu, memory;
} utilization;
result nvmlDeviceGetUtilizationRates(void *h, utilization *value) {
  GPU(h);
  value->gpu = gpu->busy;
  return OK;
}
result nvmlDeviceGetTotalEccErrors(void *h, int kind, int counter, u64 *value) {
  GPU(h);
  (void)counter;
  *value = kind == 0 ? gpu->ecc_corrected : gpu->ecc_uncorrected;
  return OK;
}
result nvmlDeviceGetRemappedRows(void *h, unsigned *a, unsigned *b, unsigned *pending, unsigned *failed) {
  GPU(h);
  *a = *b = 0;
  *pending = gpu->remap_pending;
  *failed = gpu->remap_failed;
  return OK;
}
typedef struct {
  unsigned field, scope;
  long long timestamp, latency_us;
  int type;
  result answer;
  union {
    unsigned ui;
    u64 ull;
  } value;
} field_value;
result nvmlDeviceGetFieldValues(void *h, int count, field_value *values) {
  GPU(h);
  for (int n = 0; n < count; n++) {
    values[n].answer = values[n].field == 230 ? OK : NOT_SUPPORTED;
    values[n].value.ui = gpu->recovery;
  }
  return OK;
}
