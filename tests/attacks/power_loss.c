/* What a disk would hold if the power failed now: kept beside the files of a process, by LD_PRELOAD, on Linux.

   POWER_LOSS_DISK    The folder that is watched, with all that is in it: an absolute path without symbolic links.
   POWER_LOSS_SHADOW  Where to keep what would be left; on the same file system, and with these three folders in it:
       content/INODE    the bytes of a file when it was last synced
       names/INODE      the entries of a folder when it was last synced, each as "INODE NAME" with a zero byte after it
       live/INODE       one more link to a file, so that its number is never that of another file
   POWER_LOSS_AT      If set: the power fails just before this process's n-th sync does anything.

   Nothing but fsync and fdatasync makes anything durable: of a file its content, of a folder the names in it. A real
   disk may keep more: what is written by itself after some seconds, or by sync, syncfs, msync, O_SYNC and O_DSYNC. So
   whatever a server needs must have been synced. Permissions are not watched.

   The real calls are left out for watched files: what was copied is what counts. */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void give_up(const char *what)
{
    dprintf(STDERR_FILENO, "power_loss: %s: %s\n", what, strerror(errno));
    abort();
}

static void path_to(char *path, const char *name)
{
    if (snprintf(path, PATH_MAX, "%s/%s", getenv("POWER_LOSS_SHADOW"), name) >= PATH_MAX)
        give_up("the path of the shadow is too long");
}

static void path_of(char *path, const char *kind, ino_t inode)
{
    char name[64];
    snprintf(name, sizeof name, "%s/%ju", kind, (uintmax_t)inode);
    path_to(path, name);
}

/* What an open file is called here, also if it has no other name any more. */
static void path_by(char *path, int fd)
{
    snprintf(path, PATH_MAX, "/proc/self/fd/%d", fd);
}

static bool is_watched(int fd)
{
    const char *disk = getenv("POWER_LOSS_DISK");
    char by[PATH_MAX], path[PATH_MAX];
    path_by(by, fd);
    ssize_t length = readlink(by, path, sizeof path - 1);
    if (disk == NULL || length < 0)
        return false;
    path[length] = '\0';
    size_t prefix = strlen(disk);
    return strncmp(path, disk, prefix) == 0 && (path[prefix] == '/' || path[prefix] == '\0');
}

static int new_draft(void)
{
    char path[PATH_MAX];
    path_to(path, "draft");
    int draft = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (draft < 0)
        give_up(path);
    return draft;
}

/* A process may be killed at any moment: what is durable is then the old or the new, never a part. */
static void publish(int draft, const char *kind, ino_t inode)
{
    char from[PATH_MAX], to[PATH_MAX];
    path_to(from, "draft");
    path_of(to, kind, inode);
    if (close(draft) < 0 || rename(from, to) < 0)
        give_up(to);
}

static void write_whole(int draft, const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t done = write(draft, bytes, count);
        if (done < 0)
            give_up("what is durable cannot be written");
        bytes += done;
        count -= done;
    }
}

/* One more link to an open file; to one without any name, as SQLite's spare files have none, there can be none. */
static void hold(int fd, ino_t inode)
{
    char by[PATH_MAX], path[PATH_MAX];
    path_by(by, fd);
    path_of(path, "live", inode);
    if (linkat(AT_FDCWD, by, AT_FDCWD, path, AT_SYMLINK_FOLLOW) < 0 && errno != EEXIST && errno != ENOENT)
        give_up(path);
}

/* A file is not opened anew if it can be read: closing it takes away the locks that SQLite has on it in this process. */
static void keep_content(int fd, ino_t inode)
{
    static char bytes[1 << 16]; /* for whoever has the lock */
    char by[PATH_MAX];
    path_by(by, fd);
    hold(fd, inode);
    bool writes_only = (fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY;
    int from = writes_only ? open(by, O_RDONLY | O_CLOEXEC) : fd;
    int draft = new_draft();
    off_t place = 0;
    ssize_t count;
    while ((count = pread(from, bytes, sizeof bytes, place)) > 0) {
        write_whole(draft, bytes, count);
        place += count;
    }
    if (count < 0)
        give_up("a file cannot be read");
    if (writes_only)
        close(from);
    publish(draft, "content", inode);
}

/* Files are opened by O_PATH, which leaves their locks alone. */
static void keep_name(int draft, int folder, const char *name)
{
    struct stat about;
    char line[NAME_MAX + 64];
    int fd = openat(folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return; /* it is gone again */
    if (fstat(fd, &about) < 0)
        give_up(name);
    if (S_ISREG(about.st_mode))
        hold(fd, about.st_ino);
    int length = snprintf(line, sizeof line, "%ju %s", (uintmax_t)about.st_ino, name);
    write_whole(draft, line, length + 1);
    close(fd);
}

static void keep_names(int fd, ino_t inode)
{
    int opened = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = opened < 0 ? NULL : fdopendir(opened);
    if (folder == NULL)
        give_up("a folder cannot be read");
    int draft = new_draft();
    for (struct dirent *each; (each = readdir(folder)) != NULL;)
        if (strcmp(each->d_name, ".") != 0 && strcmp(each->d_name, "..") != 0)
            keep_name(draft, fd, each->d_name);
    closedir(folder);
    publish(draft, "names", inode);
}

/* One thread of one process at a time: an older copy must not replace a younger one. */
static int locked(void)
{
    char path[PATH_MAX];
    path_to(path, "lock");
    int lock = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (lock < 0 || flock(lock, LOCK_EX) < 0)
        give_up(path);
    return lock;
}

static void fail_in_time(void)
{
    static long synced; /* for whoever has the lock */
    const char *at = getenv("POWER_LOSS_AT");
    if (at != NULL && ++synced == atol(at)) {
        kill(getpid(), SIGKILL);
        for (;;)
            pause();
    }
}

static int sync_by(long call, int fd)
{
    struct stat about;
    if (!is_watched(fd) || fstat(fd, &about) < 0)
        return syscall(call, fd);
    int lock = locked();
    fail_in_time();
    if (S_ISDIR(about.st_mode))
        keep_names(fd, about.st_ino);
    else
        keep_content(fd, about.st_ino);
    close(lock);
    return 0;
}

int fsync(int fd)
{
    return sync_by(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    return sync_by(SYS_fdatasync, fd);
}
