/* Loaded with LD_PRELOAD: while the file named by SLOW_SYNC_TRIGGER exists, every sync (and every write that is one) waits for it to go away; while the
 * one named by FAIL_SYNC_TRIGGER exists, every sync fails with EIO; while the one named by FULL_DISK_TRIGGER exists, no file
 * gets blocks (ENOSPC). Each sync that waited leaves one byte in TRIGGER.waited, each that failed one in TRIGGER.failed, each
 * file that got none one in TRIGGER.refused, so that a test can prove that the fault happened. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static void leave_a_byte(const char *trigger, const char *ending) {
    char path[4096];
    snprintf(path, sizeof path, "%s.%s", trigger, ending);
    int fd = open(path, O_CREAT | O_WRONLY | O_APPEND, 0600);
    if (fd >= 0) {
        if (write(fd, "x", 1) != 1)
            abort();
        close(fd);
    }
}

static void wait_while_triggered(void) {
    const char *trigger = getenv("SLOW_SYNC_TRIGGER");
    if (trigger == NULL || access(trigger, F_OK) != 0)
        return;
    leave_a_byte(trigger, "waited");
    struct timespec pause = {0, 5 * 1000 * 1000};
    while (access(trigger, F_OK) == 0)
        nanosleep(&pause, NULL);
}

static int fails(void) {
    const char *trigger = getenv("FAIL_SYNC_TRIGGER");
    if (trigger == NULL || access(trigger, F_OK) != 0)
        return 0;
    leave_a_byte(trigger, "failed");
    errno = EIO;
    return 1;
}

int fdatasync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    wait_while_triggered();
    return fails() ? -1 : real(fd);
}

int fsync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    wait_while_triggered();
    return fails() ? -1 : real(fd);
}

/* A write that is durable when it returns: RWF_DSYNC. */
static ssize_t write_durable(const char *name, int fd, const struct iovec *parts, int count, off64_t offset, int flags) {
    ssize_t (*real)(int, const struct iovec *, int, off64_t, int) =
        (ssize_t(*)(int, const struct iovec *, int, off64_t, int))dlsym(RTLD_NEXT, name);
    if (flags & RWF_DSYNC) {
        wait_while_triggered();
        if (fails())
            return -1;
    }
    return real(fd, parts, count, offset, flags);
}

ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t offset, int flags) {
    return write_durable("pwritev2", fd, parts, count, offset, flags);
}

ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t offset, int flags) {
    return write_durable("pwritev64v2", fd, parts, count, offset, flags);
}

static int is_full(void) {
    const char *trigger = getenv("FULL_DISK_TRIGGER");
    if (trigger == NULL || access(trigger, F_OK) != 0)
        return 0;
    leave_a_byte(trigger, "refused");
    errno = ENOSPC;
    return 1;
}

/* Holes may be punched on a full disk, so only mode 0 fails. */
int fallocate64(int fd, int mode, off64_t offset, off64_t length) {
    int (*real)(int, int, off64_t, off64_t) = (int (*)(int, int, off64_t, off64_t))dlsym(RTLD_NEXT, "fallocate64");
    return mode == 0 && is_full() ? -1 : real(fd, mode, offset, length);
}

int fallocate(int fd, int mode, off_t offset, off_t length) {
    return fallocate64(fd, mode, offset, length);
}
