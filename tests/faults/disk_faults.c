/* A disk that fails when told to: put before the C library by LD_PRELOAD, steered through a shared page.
 *
 * Every call that changes files below FAULTS_BELOW is one step; opening for writing and asking for a lock
 * count too. `left` steps pass, then one fails as `kind` says; with `stays` all that follow fail likewise,
 * until the tests clear it. Standard streams are never touched. See disk_faults.py for the other side.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { NONE, FAILS, FULL, SHORT, LATE, DIES };

struct control {
    int64_t left;     /* steps that still pass; below zero: all do */
    int32_t kind;
    int32_t stays;
    int32_t reached;  /* how many steps have failed */
    int32_t steps;    /* how many there were since it was armed */
    char call[16];    /* count only this call */
    char only[64];    /* count only paths that hold this text; with $ at its end, those that end so */
    char what[256];   /* the first step that failed */
};

static struct control *control;
static const char *below;

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FAULTS_CONTROL");
    below = getenv("FAULTS_BELOW");
    if (!path || !below) return;
    int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    int handle = real(path, O_RDWR | O_CLOEXEC);
    if (handle < 0) return;
    void *page = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, handle, 0);
    if (page != MAP_FAILED) control = page;
}

static int is_meant(const char *path) {
    size_t length = strlen(control->only), whole = strlen(path);
    if (!length || control->only[length - 1] != '$') return strstr(path, control->only) != NULL;
    return whole >= length - 1 && strncmp(path + whole - (length - 1), control->only, length - 1) == 0;
}

static int step(const char *name, const char *path) {
    if (!control || control->kind == NONE || strncmp(path, below, strlen(below)) != 0) return NONE;
    if ((control->call[0] && strcmp(control->call, name) != 0) || !is_meant(path)) return NONE;
    __atomic_add_fetch(&control->steps, 1, __ATOMIC_SEQ_CST);
    int64_t left = __atomic_fetch_sub(&control->left, 1, __ATOMIC_SEQ_CST);
    if (left > 0 || (left < 0 && !(control->stays && control->reached))) return NONE;
    if (__atomic_fetch_add(&control->reached, 1, __ATOMIC_SEQ_CST) == 0)
        snprintf(control->what, sizeof control->what, "%s %s", name, path);
    /* A full disk takes the first half of what does not fit, and then nothing. */
    if (control->kind == SHORT && left < 0) return FULL;
    return control->kind;
}

static int step_of(const char *name, int handle) {
    char link[40], path[4096];
    if (handle <= 2 || !control || control->kind == NONE) return NONE;
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return NONE;
    path[length] = 0;
    return step(name, path);
}

static int refused(int kind) {
    if (kind == DIES) kill(getpid(), SIGKILL);
    errno = kind == FAILS || kind == LATE ? EIO : ENOSPC;
    return -1;
}

#define WRITES(name, parameters, whole, half) \
    ssize_t name parameters { \
        REAL(name); \
        int kind = step_of(#name, handle); \
        if (kind == NONE) return whole; \
        if (kind == SHORT && size > 1) return half; \
        if (kind == LATE) (void)!(whole); \
        if (kind == DIES) (void)!(half); \
        return refused(kind); \
    }

WRITES(write, (int handle, const void *from, size_t size), real(handle, from, size), real(handle, from, size / 2))
WRITES(pwrite, (int handle, const void *from, size_t size, off_t at), real(handle, from, size, at),
       real(handle, from, size / 2, at))
WRITES(pwrite64, (int handle, const void *from, size_t size, off64_t at), real(handle, from, size, at),
       real(handle, from, size / 2, at))
WRITES(pwritev, (int handle, const struct iovec *from, int size, off_t at), real(handle, from, size, at),
       real(handle, from, size / 2, at))
WRITES(pwritev64, (int handle, const struct iovec *from, int size, off64_t at), real(handle, from, size, at),
       real(handle, from, size / 2, at))

#define CHANGES(name, parameters, subject, call) \
    int name parameters { \
        REAL(name); \
        int kind = subject; \
        if (kind == NONE) return call; \
        if (kind == LATE) (void)call; \
        return refused(kind); \
    }

CHANGES(fsync, (int handle), step_of("fsync", handle), real(handle))
CHANGES(fdatasync, (int handle), step_of("fdatasync", handle), real(handle))
CHANGES(ftruncate, (int handle, off_t size), step_of("ftruncate", handle), real(handle, size))
CHANGES(ftruncate64, (int handle, off64_t size), step_of("ftruncate", handle), real(handle, size))
CHANGES(fallocate, (int handle, int mode, off_t at, off_t size), step_of("fallocate", handle),
        real(handle, mode, at, size))
CHANGES(rename, (const char *from, const char *to), step("rename", to), real(from, to))
CHANGES(unlink, (const char *path), step("unlink", path), real(path))
CHANGES(mkdir, (const char *path, mode_t mode), step("mkdir", path), real(path, mode))
CHANGES(flock, (int handle, int way), way & LOCK_UN ? NONE : step_of("flock", handle), real(handle, way))

int posix_fallocate(int handle, off_t at, off_t size) {
    REAL(posix_fallocate);
    int kind = step_of("fallocate", handle);
    if (kind == NONE) return real(handle, at, size);
    refused(kind);
    return errno;
}

#define OPENS(name, parameters, path, call) \
    int name parameters { \
        REAL(name); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest); \
        int kind = flags & (O_WRONLY | O_RDWR) ? step("open", path) : NONE; \
        return kind == NONE ? call : refused(kind); \
    }

OPENS(open, (const char *path, int flags, ...), path, real(path, flags, mode))
OPENS(open64, (const char *path, int flags, ...), path, real(path, flags, mode))
OPENS(openat, (int folder, const char *path, int flags, ...), path, real(folder, path, flags, mode))
OPENS(openat64, (int folder, const char *path, int flags, ...), path, real(folder, path, flags, mode))
