/* Fails the n-th call of one kind on the files below a folder; for LD_PRELOAD.
 *
 * Calls that know no file (pthread_create, msync) fail wherever they come from. The names are those of the calls; what glibc calls them for CPython (fstat64, fcntl64,
 * mmap64, ...) is seen as the same call.
 *
 * Arm it with fault_arm(); nothing fails before. fault_fired() says how often it has struck, and
 * fault_fired_at_log() how often at files of the log. A short write or read (FAULT_SHORT) moves half
 * of what it was given. FAULT_KILL ends the process instead; FAULT_SLOW takes its time, then works.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define FAULT_SHORT (-1)
#define FAULT_KILL (-2)
#define FAULT_SLOW (-3)
#define SLOW_SECONDS 5
#define SECTOR 512

static char armed_call[32];
static char armed_folder[PATH_MAX];
static int armed_error;
static int armed_nth;
static int armed_forever;
static atomic_int seen;
static atomic_int fired;
static atomic_int fired_at_log;

/* Fail the nth call (1 is the next one, 0 is none) of `call` with `error`; and all that follow, if
 * `forever`. */
void fault_arm(const char *call, int error, int nth, int forever, const char *folder)
{
    snprintf(armed_folder, sizeof armed_folder, "%s", folder);
    armed_error = error;
    armed_nth = nth;
    armed_forever = forever;
    atomic_store(&seen, 0);
    atomic_store(&fired, 0);
    atomic_store(&fired_at_log, 0);
    snprintf(armed_call, sizeof armed_call, "%s", call);
}

int fault_seen(void) { return atomic_load(&seen); }

int fault_fired(void) { return atomic_load(&fired); }

int fault_fired_at_log(void) { return atomic_load(&fired_at_log); }

static int strikes(const char *path)
{
    int nth = atomic_fetch_add(&seen, 1) + 1;
    if (!armed_nth || (nth != armed_nth && !(armed_forever && nth > armed_nth)))
        return 0;
    if (armed_error == FAULT_KILL)
        kill(getpid(), SIGKILL);
    if (armed_error == FAULT_SLOW) {
        struct timespec slow = {SLOW_SECONDS, 0};
        nanosleep(&slow, NULL);
        return 0;
    }
    if (strstr(path, "/commitlog/"))
        atomic_fetch_add(&fired_at_log, 1);
    atomic_fetch_add(&fired, 1);
    return 1;
}

static int at_path(const char *call, const char *path)
{
    if (strcmp(call, armed_call) != 0 || !strstr(path, armed_folder))
        return 0;
    return strikes(path);
}

static int at_file(const char *call, int fd)
{
    char link[64], path[PATH_MAX];
    if (strcmp(call, armed_call) != 0)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return at_path(call, path);
}

static int at_any(const char *call) { return strcmp(call, armed_call) == 0 && strikes(""); }

static int failed(void)
{
    errno = armed_error;
    return -1;
}

/* Half of a length; whole sectors where the file was opened with O_DIRECT, as the kernel does it. */
static size_t half(int fd, size_t length)
{
    if (!(fcntl(fd, F_GETFL) & O_DIRECT))
        return (length + 1) / 2;
    return length > SECTOR ? length / 2 / SECTOR * SECTOR : length;
}

#define REAL(result, name, ...)                                   \
    static result (*real)(__VA_ARGS__);                           \
    if (!real)                                                    \
        real = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

int fsync(int fd)
{
    REAL(int, "fsync", int);
    return at_file("fsync", fd) ? failed() : real(fd);
}

int fdatasync(int fd)
{
    REAL(int, "fdatasync", int);
    return at_file("fdatasync", fd) ? failed() : real(fd);
}

int msync(void *address, size_t length, int flags)
{
    REAL(int, "msync", void *, size_t, int);
    return at_any("msync") ? failed() : real(address, length, flags);
}

ssize_t pread64(int fd, void *data, size_t length, off64_t at)
{
    REAL(ssize_t, "pread64", int, void *, size_t, off64_t);
    if (!at_file("pread", fd))
        return real(fd, data, length, at);
    return armed_error == FAULT_SHORT ? real(fd, data, half(fd, length), at) : failed();
}

ssize_t pread(int fd, void *data, size_t length, off_t at)
{
    return pread64(fd, data, length, at);
}

ssize_t write(int fd, const void *data, size_t length)
{
    REAL(ssize_t, "write", int, const void *, size_t);
    if (!at_file("write", fd))
        return real(fd, data, length);
    return armed_error == FAULT_SHORT ? real(fd, data, half(fd, length)) : failed();
}

ssize_t pwrite64(int fd, const void *data, size_t length, off64_t at)
{
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
    if (!at_file("pwrite", fd))
        return real(fd, data, length, at);
    return armed_error == FAULT_SHORT ? real(fd, data, half(fd, length), at) : failed();
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t at)
{
    return pwrite64(fd, data, length, at);
}

int posix_fallocate64(int fd, off64_t at, off64_t length)
{
    REAL(int, "posix_fallocate64", int, off64_t, off64_t);
    return at_file("fallocate", fd) ? armed_error : real(fd, at, length);
}

int posix_fallocate(int fd, off_t at, off_t length) { return posix_fallocate64(fd, at, length); }

int ftruncate64(int fd, off64_t length)
{
    REAL(int, "ftruncate64", int, off64_t);
    return at_file("ftruncate", fd) ? failed() : real(fd, length);
}

int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }

int rename(const char *from, const char *to)
{
    REAL(int, "rename", const char *, const char *);
    return at_path("rename", to) ? failed() : real(from, to);
}

int unlink(const char *path)
{
    REAL(int, "unlink", const char *);
    return at_path("unlink", path) ? failed() : real(path);
}

int mkdir(const char *path, mode_t mode)
{
    REAL(int, "mkdir", const char *, mode_t);
    return at_path("mkdir", path) ? failed() : real(path, mode);
}

int rmdir(const char *path)
{
    REAL(int, "rmdir", const char *);
    return at_path("rmdir", path) ? failed() : real(path);
}

int renameat2(int from_in, const char *from, int to_in, const char *to, unsigned flags)
{
    REAL(int, "renameat2", int, const char *, int, const char *, unsigned);
    return at_path("rename", to) ? failed() : real(from_in, from, to_in, to, flags);
}

int open64(const char *path, int flags, ...)
{
    REAL(int, "open64", const char *, int, ...);
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return at_path("open", path) ? failed() : real(path, flags, mode);
}

int open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return open64(path, flags, mode);
}

/* --- calls that look, lock, map and start --- */

int fstat64(int fd, struct stat64 *found)
{
    REAL(int, "fstat64", int, struct stat64 *);
    return at_file("fstat", fd) ? failed() : real(fd, found);
}

int stat64(const char *path, struct stat64 *found)
{
    REAL(int, "stat64", const char *, struct stat64 *);
    return at_path("stat", path) ? failed() : real(path, found);
}

int lstat64(const char *path, struct stat64 *found)
{
    REAL(int, "lstat64", const char *, struct stat64 *);
    return at_path("stat", path) ? failed() : real(path, found);
}

int fstatat64(int folder, const char *path, struct stat64 *found, int flags)
{
    REAL(int, "fstatat64", int, const char *, struct stat64 *, int);
    return at_path("stat", path) ? failed() : real(folder, path, found, flags);
}

DIR *opendir(const char *path)
{
    REAL(DIR *, "opendir", const char *);
    if (!at_path("opendir", path))
        return real(path);
    errno = armed_error;
    return NULL;
}

DIR *fdopendir(int fd)
{
    REAL(DIR *, "fdopendir", int);
    if (!at_file("opendir", fd))
        return real(fd);
    errno = armed_error;
    return NULL;
}

int fcntl64(int fd, int command, ...)
{
    REAL(int, "fcntl64", int, int, ...);
    va_list rest;
    va_start(rest, command);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    return at_file("fcntl", fd) ? failed() : real(fd, command, argument);
}

void *mmap64(void *address, size_t length, int protection, int flags, int fd, off64_t at)
{
    REAL(void *, "mmap64", void *, size_t, int, int, int, off64_t);
    if (!at_file("mmap", fd))
        return real(address, length, protection, flags, fd, at);
    errno = armed_error;
    return MAP_FAILED;
}

/* By this name Python code calls it, through ctypes. */
void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t at)
{
    return mmap64(address, length, protection, flags, fd, at);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*work)(void *), void *what)
{
    REAL(int, "pthread_create", pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    return at_any("pthread_create") ? armed_error : real(thread, how, work, what);
}
