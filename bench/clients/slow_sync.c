/* slow_sync: a disk slower than this one. LD_PRELOAD it, and every fsync, fdatasync and syncfs takes longer.
 *
 * By how many microseconds stands, as a 64-bit integer, in the file that BENCH_SYNC_DELAY names, and may be changed
 * while the process runs: so one warm broker is measured with and without.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *delay_us;

__attribute__((constructor)) static void open_delay(void) {
  const char *path = getenv("BENCH_SYNC_DELAY");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *page = mmap(NULL, sizeof *delay_us, PROT_READ, MAP_SHARED, file, 0);
  if (page != MAP_FAILED) delay_us = page;
  close(file);
}

static int slowly(long number, int file) {
  int result = (int)syscall(number, file);
  int64_t us = delay_us ? *delay_us : 0;
  if (us > 0) {
    struct timespec wait = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&wait, NULL);
  }
  return result;
}

int fsync(int file) { return slowly(SYS_fsync, file); }
int fdatasync(int file) { return slowly(SYS_fdatasync, file); }
int syncfs(int file) { return slowly(SYS_syncfs, file); }
