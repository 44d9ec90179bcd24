/* Preloaded into a process: while a shared file says so, the disk below one folder is full. Whatever would take room
   there fails with ENOSPC; reading, renaming and deleting go on. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static int64_t none;
static volatile int64_t *is_full = &none;
static const char *folder;

__attribute__((constructor)) static void open_switch(void) {
    const char *path = getenv("FULL_DISK_SWITCH");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    folder = getenv("FULL_DISK_FOLDER");
    if (file < 0 || !folder)
        return;
    void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED)
        is_full = page;
    close(file);
}

static int has_no_room(int file) {
    char name[32], path[4096];
    if (!*is_full)
        return 0;
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    ssize_t length = readlink(name, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return !strncmp(path, folder, strlen(folder));
}

#define FAIL_WITHOUT_ROOM(file)                                                                                        \
    if (has_no_room(file)) {                                                                                           \
        errno = ENOSPC;                                                                                                \
        return -1;                                                                                                     \
    }

ssize_t write(int file, const void *data, size_t size) {
    FAIL_WITHOUT_ROOM(file)
    return syscall(SYS_write, file, data, size);
}

ssize_t pwrite(int file, const void *data, size_t size, off_t offset) {
    FAIL_WITHOUT_ROOM(file)
    return syscall(SYS_pwrite64, file, data, size, offset);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t offset) {
    return pwrite(file, data, size, offset);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    FAIL_WITHOUT_ROOM(file)
    return syscall(SYS_writev, file, parts, count);
}

ssize_t pwritev(int file, const struct iovec *parts, int count, off_t offset) {
    FAIL_WITHOUT_ROOM(file)
    return syscall(SYS_pwritev, file, parts, count, offset, 0L);
}

ssize_t pwritev64(int file, const struct iovec *parts, int count, off64_t offset) {
    return pwritev(file, parts, count, offset);
}

int fallocate(int file, int mode, off_t offset, off_t size) {
    FAIL_WITHOUT_ROOM(file)
    return (int)syscall(SYS_fallocate, file, mode, offset, size);
}

int posix_fallocate(int file, off_t offset, off_t size) {
    if (has_no_room(file))
        return ENOSPC;
    return syscall(SYS_fallocate, file, 0, offset, size) ? errno : 0;
}

int posix_fallocate64(int file, off64_t offset, off64_t size) { return posix_fallocate(file, offset, size); }

ssize_t sendfile(int to, int from, off_t *offset, size_t size) {
    FAIL_WITHOUT_ROOM(to)
    return syscall(SYS_sendfile, to, from, offset, size);
}

ssize_t sendfile64(int to, int from, off64_t *offset, size_t size) { return sendfile(to, from, offset, size); }
