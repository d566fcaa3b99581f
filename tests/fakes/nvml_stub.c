/* A small libnvidia-ml.so.1 for tests. Its state is an mmapped file ($EVERSTEP_FAKE_NVML) that the
 * test writes; nvml.py knows the layout. Events come from a pipe beside it. Structs and numbers as
 * in nvml.h of driver 570. With -DOLD_DRIVER it lacks what came after driver 470. */
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
  OK = 0,
  UNINITIALIZED = 1,
  INVALID = 2,
  NOT_SUPPORTED = 3,
  NOT_FOUND = 6,
  INSUFFICIENT_SIZE = 7,
  NO_DRIVER = 9,
  TIMEOUT = 10,
  LOST = 15,
  RESET_REQUIRED = 16,
  VERSION_MISMATCH = 18,
  NOT_KNOWN = 999
};
enum { GPUS_MAX = 16, LINKS_MAX = 18, COUNTERS = 6, PROCESSES_MAX = 16, NAME_MAX_ = 64 };
typedef int result;
typedef unsigned long long u64;

#define VALUE(name, start) int64_t name;
struct values {
#include "nvml_stub_values.h"
};
#undef VALUE
struct process {
  uint64_t pid, bytes;
};
struct gpu {
  struct values values;
  int64_t counters[LINKS_MAX][COUNTERS];
  struct process processes[PROCESSES_MAX];
};
struct state {
  uint32_t gpus, hang;
  /* Every call takes so long; nvmlInit answers so; the one function that hangs. */
  uint32_t slow_us, init_error;
  char hung_call[NAME_MAX_];
  struct gpu gpu[GPUS_MAX];
};
static volatile struct state *state;
/* Corrected errors come from a pipe of their own, so that two sets do not take each other's. */
static int events = -1, corrected = -1;
static u64 wanted[8];

static void wait_for_driver(const char *call) {
  while (state->hang || !strcmp((const char *)state->hung_call, call)) usleep(10000);
  if (state->slow_us) usleep(state->slow_us);
}
/* Every call to a GPU passes here. */
static result find(void *handle, int *index, const char *call) {
  if (!state) return UNINITIALIZED;
  wait_for_driver(call);
  *index = (int)((intptr_t)handle - 0x1000) & 0xff;
  if (!handle || *index < 0 || *index >= (int)state->gpus) return INVALID;
  return (result)state->gpu[*index].values.error;
}
#define GPU(handle)                                          \
  int i;                                                     \
  result answer = find(handle, &i, __func__);                \
  if (answer != OK) return answer;                           \
  volatile struct values *gpu = &state->gpu[i].values;       \
  (void)gpu
#define NUMBER(function, name)                               \
  result function(void *h, unsigned *value) {                \
    GPU(h);                                                  \
    if (gpu->name == UNKNOWN) return NOT_SUPPORTED;          \
    *value = (unsigned)gpu->name;                            \
    return OK;                                               \
  }

result nvmlInitWithFlags(unsigned flags) {
  const char *path = getenv("EVERSTEP_FAKE_NVML");
  int fd = path ? open(path, O_RDWR) : -1;
  (void)flags;
  if (fd < 0) return NO_DRIVER;
  void *memory = mmap(0, sizeof(struct state), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) return NO_DRIVER;
  state = memory;
  char pipe[4096];
  snprintf(pipe, sizeof pipe, "%s.events", path);
  events = open(pipe, O_RDWR | O_NONBLOCK);
  snprintf(pipe, sizeof pipe, "%s.corrected", path);
  corrected = open(pipe, O_RDWR | O_NONBLOCK);
  wait_for_driver(__func__);
  return (result)state->init_error;
}
result nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
result nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(result r) {
  switch (r) {
    case NOT_SUPPORTED: return "Not Supported";
    case NO_DRIVER: return "Driver Not Loaded";
    case LOST: return "GPU is lost";
    case RESET_REQUIRED: return "GPU requires restart";
    case VERSION_MISMATCH: return "Driver/library version mismatch";
    case NOT_KNOWN: return "Unknown Error";
    default: return "fake error";
  }
}
result nvmlSystemGetDriverVersion(char *text, unsigned n) {
  snprintf(text, n, "570.00");
  return OK;
}
result nvmlSystemGetNVMLVersion(char *text, unsigned n) {
  snprintf(text, n, "12.570.00");
  return OK;
}
result nvmlDeviceGetCount_v2(unsigned *n) {
  wait_for_driver(__func__);
  *n = state->gpus;
  return OK;
}
result nvmlDeviceGetHandleByIndex_v2(unsigned i, void **handle) {
  int index;
  *handle = (void *)(intptr_t)(0x1000 + i);
  return find(*handle, &index, __func__);
}
static int slice_of(void *h) { return (int)((intptr_t)h >> 16); }
result nvmlDeviceGetName(void *h, char *text, unsigned n) {
  GPU(h);
  snprintf(text, n, slice_of(h) ? "NVIDIA H100 80GB HBM3 MIG 1g.10gb" : "NVIDIA H100 80GB HBM3");
  return OK;
}
result nvmlDeviceGetUUID(void *h, char *text, unsigned n) {
  GPU(h);
  if (slice_of(h)) snprintf(text, n, "MIG-00000000-0000-0000-%04d-%012d", slice_of(h), i);
  else snprintf(text, n, "GPU-00000000-0000-0000-0000-%012d", i);
  return OK;
}
result nvmlDeviceGetVbiosVersion(void *h, char *text, unsigned n) {
  GPU(h);
  snprintf(text, n, "%d.00.30.00.01", (int)gpu->vbios);
  return OK;
}
result nvmlDeviceGetInforomImageVersion(void *h, char *text, unsigned n) {
  GPU(h);
  snprintf(text, n, "G520.0200.00.0%d", (int)gpu->inforom);
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
result nvmlDeviceGetHandleByPciBusId_v2(const char *text, void **handle) {
  unsigned domain, bus;
  if (sscanf(text, "%x:%x:", &domain, &bus) != 2 || bus < 0x3b || bus - 0x3b >= state->gpus)
    return NOT_FOUND;
  return nvmlDeviceGetHandleByIndex_v2(bus - 0x3b, handle);
}
typedef struct {
  u64 total, free, used;
} memory_info;
result nvmlDeviceGetMemoryInfo(void *h, memory_info *info) {
  GPU(h);
  info->total = slice_of(h) ? 10ull << 30 : (u64)gpu->memory_total;
  info->used = gpu->memory_used;
  info->free = info->total - info->used;
  return OK;
}
#ifndef OLD_DRIVER
typedef struct {
  unsigned version;
  u64 total, reserved, free, used;
} memory_info_v2;
result nvmlDeviceGetMemoryInfo_v2(void *h, memory_info_v2 *info) {
  GPU(h);
  info->total = gpu->memory_total;
  info->used = gpu->memory_used;
  info->reserved = 600ull << 20;
  info->free = info->total - info->used;
  return OK;
}
#endif
result nvmlDeviceGetTemperature(void *h, int sensor, unsigned *value) {
  GPU(h);
  (void)sensor;
  if (gpu->temperature == UNKNOWN) return NOT_SUPPORTED;
  *value = gpu->temperature;
  return OK;
}
result nvmlDeviceGetTemperatureThreshold(void *h, int kind, unsigned *value) {
  GPU(h);
  int64_t all[] = {gpu->threshold_shutdown, gpu->threshold_slowdown, gpu->threshold_memory,
                   gpu->threshold_gpu};
  if (kind < 0 || kind > 3 || all[kind] == UNKNOWN) return NOT_SUPPORTED;
  *value = all[kind];
  return OK;
}
#ifndef OLD_DRIVER
typedef struct {
  unsigned version;
  int margin;
} margin_info;
result nvmlDeviceGetMarginTemperature(void *h, margin_info *info) {
  GPU(h);
  if (gpu->margin == UNKNOWN) return NOT_SUPPORTED;
  info->margin = gpu->margin;
  return OK;
}
#endif
NUMBER(nvmlDeviceGetPowerUsage, power_mw)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, power_limit_mw)
NUMBER(nvmlDeviceGetPersistenceMode, persistence)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, pcie_generation)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, pcie_generation_max)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, pcie_width)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, pcie_width_max)
NUMBER(nvmlDeviceGetPcieReplayCounter, pcie_replays)
NUMBER(nvmlDeviceGetMaxMigDeviceCount, mig_devices)
result nvmlDeviceGetClockInfo(void *h, int kind, unsigned *value) {
  GPU(h);
  int64_t clock = kind == 2 ? gpu->memory_clock : gpu->sm_clock;
  if (clock == UNKNOWN) return NOT_SUPPORTED;
  *value = clock;
  return OK;
}
result nvmlDeviceGetMaxClockInfo(void *h, int kind, unsigned *value) {
  GPU(h);
  (void)kind;
  *value = gpu->sm_clock_max;
  return OK;
}
#ifdef OLD_DRIVER
#define CLOCK_REASONS nvmlDeviceGetCurrentClocksThrottleReasons
#else
#define CLOCK_REASONS nvmlDeviceGetCurrentClocksEventReasons
#endif
result CLOCK_REASONS(void *h, u64 *value) {
  GPU(h);
  if (gpu->clock_reasons == UNKNOWN) return NOT_SUPPORTED;
  *value = gpu->clock_reasons;
  return OK;
}
typedef struct {
  unsigned gpu, memory;
} utilization;
result nvmlDeviceGetUtilizationRates(void *h, utilization *value) {
  GPU(h);
  if (gpu->busy == UNKNOWN || gpu->mig) return NOT_SUPPORTED;
  value->gpu = gpu->busy;
  return OK;
}
result nvmlDeviceGetTotalEccErrors(void *h, int kind, int counter, u64 *value) {
  GPU(h);
  (void)counter;
  int64_t count = kind == 0 ? gpu->ecc_corrected : gpu->ecc_uncorrected;
  if (count == UNKNOWN) return NOT_SUPPORTED;
  *value = count;
  return OK;
}
#ifndef OLD_DRIVER
typedef struct {
  unsigned version;
  u64 counts[11];
  unsigned exceeded;
} sram_status;
result nvmlDeviceGetSramEccErrorStatus(void *h, sram_status *status) {
  GPU(h);
  if (gpu->sram_threshold == UNKNOWN) return NOT_SUPPORTED;
  /* Aggregate parity, SEC-DED, corrected; then volatile ones; then aggregate ones by place. */
  status->counts[0] = gpu->sram_parity_aggregate;
  status->counts[1] = gpu->sram_secded_aggregate;
  status->counts[3] = gpu->sram_parity;
  status->counts[4] = gpu->sram_secded;
  status->exceeded = gpu->sram_threshold;
  return OK;
}
#endif
result nvmlDeviceGetRemappedRows(void *h, unsigned *corrected, unsigned *uncorrected,
                                 unsigned *pending, unsigned *failed) {
  GPU(h);
  if (gpu->remap_pending == UNKNOWN) return NOT_SUPPORTED;
  *corrected = gpu->remap_corrected;
  *uncorrected = gpu->remap_uncorrected;
  *pending = gpu->remap_pending;
  *failed = gpu->remap_failed;
  return OK;
}
typedef struct {
  unsigned max, high, partial, low, none;
} histogram;
result nvmlDeviceGetRowRemapperHistogram(void *h, histogram *rows) {
  GPU(h);
  if (gpu->remap_banks_exhausted == UNKNOWN) return NOT_SUPPORTED;
  *rows = (histogram){640, 0, 0, 0, (unsigned)gpu->remap_banks_exhausted};
  return OK;
}
typedef struct {
  unsigned pid;
  u64 bytes;
  unsigned gpu_instance, compute_instance;
} process_info;
static result list(volatile struct gpu *gpu, int64_t have, unsigned *count, process_info *infos) {
  unsigned room = infos ? *count : 0;
  *count = have;
  if (!have) return OK;
  if (room < have) return INSUFFICIENT_SIZE;
  for (int n = 0; n < have; n++)
    infos[n] = (process_info){gpu->processes[n].pid, gpu->processes[n].bytes, ~0u, ~0u};
  return OK;
}
#ifdef OLD_DRIVER
#define PROCESSES nvmlDeviceGetComputeRunningProcesses_v2
#else
#define PROCESSES nvmlDeviceGetComputeRunningProcesses_v3
#endif
result PROCESSES(void *h, unsigned *count, process_info *infos) {
  GPU(h);
  if (gpu->processes == UNKNOWN) return NOT_SUPPORTED;
  return list(&state->gpu[i], gpu->processes, count, infos);
}
#ifndef OLD_DRIVER
result nvmlDeviceGetGraphicsRunningProcesses_v3(void *h, unsigned *count, process_info *infos) {
  GPU(h);
  return list(&state->gpu[i], gpu->graphics_processes, count, infos);
}
#endif
result nvmlDeviceGetMigMode(void *h, unsigned *current, unsigned *pending) {
  GPU(h);
  if (gpu->mig == UNKNOWN) return NOT_SUPPORTED;
  *current = *pending = gpu->mig;
  return OK;
}
result nvmlDeviceGetMigDeviceHandleByIndex(void *h, unsigned slice, void **found) {
  GPU(h);
  if (slice >= gpu->mig_devices) return NOT_FOUND;
  *found = (void *)((intptr_t)h | (intptr_t)(slice + 1) << 16);
  return OK;
}
result nvmlDeviceGetNvLinkState(void *h, unsigned link, unsigned *active) {
  GPU(h);
  if (gpu->mig) return NOT_SUPPORTED;
  if (link >= gpu->links) return INVALID;
  *active = !(gpu->links_down >> link & 1);
  return OK;
}
/* Counters of a link: those of the fields 215, 295, 208, 161, 162, 163. */
result nvmlDeviceGetNvLinkErrorCounter(void *h, unsigned link, int counter, u64 *value) {
  GPU(h);
  if (link >= gpu->links || counter > 2) return INVALID;
  *value = state->gpu[i].counters[link][3 + counter];
  return OK;
}
typedef struct {
  unsigned char cluster[16];
  result status;
  unsigned clique, state;
} fabric_info;
result nvmlDeviceGetGpuFabricInfo(void *h, fabric_info *info) {
  GPU(h);
  if (gpu->fabric_state == UNKNOWN) return NOT_SUPPORTED;
  info->status = gpu->fabric_status;
  *(unsigned char *)&info->state = gpu->fabric_state;
  return OK;
}
#ifndef OLD_DRIVER
typedef struct {
  unsigned version;
  unsigned char cluster[16];
  result status;
  unsigned clique;
  unsigned char state;
  unsigned health;
  unsigned char summary;
} fabric_info_v;
result nvmlDeviceGetGpuFabricInfoV(void *h, fabric_info_v *info) {
  GPU(h);
  if (gpu->fabric_state == UNKNOWN) return NOT_SUPPORTED;
  info->status = gpu->fabric_status;
  info->state = gpu->fabric_state;
  info->health = gpu->fabric_health;
  if (info->version >> 24 >= 3) info->summary = gpu->fabric_summary;
  return OK;
}
#endif
typedef struct {
  unsigned field, scope;
  long long timestamp, latency_us;
  int type;
  result answer;
  union {
    unsigned ui;
    u64 ull;
    int si;
  } value;
} field_value;
static int64_t field(volatile struct gpu *gpu, unsigned id, unsigned link) {
  volatile struct values *v = &gpu->values;
  static const unsigned counters[COUNTERS] = {215, 295, 208, 161, 162, 163};
#ifndef OLD_DRIVER
  for (int n = 0; n < COUNTERS; n++)
    if (id == counters[n] && link < v->links && !v->mig) return gpu->counters[link][n];
#endif
  if (id >= 46 && id < 52) return gpu->counters[id - 46][3];
  if (id >= 53 && id < 59) return gpu->counters[id - 53][4];
  switch (id) {
    case 1: return v->ecc_enabled;
    case 3: return v->ecc_corrected;
    case 4: return v->ecc_uncorrected;
    case 5: return v->ecc_corrected_aggregate;
    case 6: return v->ecc_uncorrected_aggregate;
    case 29: return v->retired_single;
    case 30: return v->retired_double;
    case 31: return v->retired_pending;
    case 82: return v->memory_temperature;
    case 91: return v->links;
    case 94: return v->pcie_replays;
    case 142: return v->remap_corrected;
    case 143: return v->remap_uncorrected;
    case 144: return v->remap_pending;
    case 145: return v->remap_failed;
#ifndef OLD_DRIVER
    case 196: return v->max_tlimit;
    case 230: return v->recovery;
#endif
  }
  return UNKNOWN;
}
result nvmlDeviceGetFieldValues(void *h, int count, field_value *values) {
  GPU(h);
  for (int n = 0; n < count; n++) {
    int64_t value = field(&state->gpu[i], values[n].field, values[n].scope);
    values[n].answer = value == UNKNOWN ? NOT_SUPPORTED : OK;
    values[n].type = value < 0 ? 5 : 3;
    values[n].value.ull = value;
  }
  return OK;
}
typedef struct {
  void *device;
  u64 type, data;
  unsigned gpu_instance, compute_instance;
} event;
result nvmlEventSetCreate(void **set) {
  for (intptr_t n = 1; n < 8; n++)
    if (!wanted[n]) {
      *set = (void *)n;
      break;
    }
  return events < 0 ? NOT_SUPPORTED : OK;
}
result nvmlEventSetFree(void *set) {
  wanted[(intptr_t)set] = 0;
  return OK;
}
result nvmlDeviceGetSupportedEventTypes(void *h, u64 *types) {
  GPU(h);
  *types = 0x1f;
  return OK;
}
result nvmlDeviceRegisterEvents(void *h, u64 types, void *set) {
  GPU(h);
  wanted[(intptr_t)set] |= types;
  return OK;
}
result nvmlEventSetWait_v2(void *set, event *told, unsigned timeout_ms) {
  int from = wanted[(intptr_t)set] & 8 ? events : corrected;
  struct pollfd ready = {from, POLLIN, 0};
  u64 record[3];
  if (poll(&ready, 1, (int)timeout_ms) <= 0) return TIMEOUT;
  if (read(from, record, sizeof record) != sizeof record) return TIMEOUT;
  *told = (event){(void *)(intptr_t)(0x1000 + record[0]), record[1], record[2], ~0u, ~0u};
  return OK;
}
