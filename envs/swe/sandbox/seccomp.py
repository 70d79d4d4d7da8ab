"""The system calls that a process in a bubblewrap sandbox may not make. Each fails with EPERM, as it would for want of a right."""

from __future__ import annotations

import errno
import functools
import tempfile
from typing import Any

from agentgym.errors import EnvError

INSTALL = "pip install pyseccomp, and apt-get install libseccomp2"

# shmget, msgget: what these make outlives its processes, and no limit counts it
DENIED = """
    mount umount2 pivot_root move_mount open_tree open_tree_attr fsopen fsconfig fsmount fspick mount_setattr chroot swapon swapoff
    unshare setns open_by_handle_at name_to_handle_at quotactl quotactl_fd acct nfsservctl
    ptrace process_vm_readv process_vm_writev process_madvise pidfd_getfd kcmp
    keyctl add_key request_key
    bpf userfaultfd perf_event_open io_uring_setup io_uring_enter io_uring_register fanotify_init lookup_dcookie
    kexec_load kexec_file_load init_module finit_module delete_module create_module query_module reboot syslog
    iopl ioperm modify_ldt vhangup uselib _sysctl ustat sysfs
    settimeofday clock_settime clock_adjtime adjtimex sethostname setdomainname
    set_mempolicy migrate_pages move_pages mbind
    shmget msgget
""".split()
_NEW_NAMESPACES = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)  # CLONE_NEWNS … CLONE_NEWNET
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # put characters into the input of a terminal


def missing() -> str | None:
    """Return None where the filter can be built, else what is missing."""
    try:
        import pyseccomp  # noqa: F401
    except (ImportError, OSError, RuntimeError) as e:
        return f"the system call filter cannot be built ({e}): {INSTALL}"
    return None


@functools.cache
def program(pin_cores: bool = False) -> bytes:
    """Return the filter as BPF, for `bwrap --seccomp`.

    pin_cores  also refuse sched_setaffinity: the cores a process may run on are then a limit
    Raises EnvError without libseccomp.
    """
    if lacking := missing():
        raise EnvError(lacking)
    import pyseccomp as lib

    rules: Any = lib.SyscallFilter(lib.ALLOW)
    refused = lib.ERRNO(errno.EPERM)
    for name in DENIED + (["sched_setaffinity"] if pin_cores else []):
        _add(rules, refused, name)
    for flag in _NEW_NAMESPACES:
        _add(rules, refused, "clone", lib.Arg(0, lib.MASKED_EQ, flag, flag))
    _add(rules, lib.ERRNO(errno.ENOSYS), "clone3")  # its flags are in memory, where a filter cannot look; libc then uses clone
    _add(rules, refused, "prlimit64", lib.Arg(0, lib.NE, 0))  # the limits of other processes, the sandbox's first one among them
    for request in (_TIOCSTI, _TIOCLINUX):
        _add(rules, refused, "ioctl", lib.Arg(1, lib.MASKED_EQ, 0xFFFFFFFF, request))
    with tempfile.TemporaryFile() as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()


def _add(rules: Any, action: int, name: str, *args: Any) -> None:
    try:
        rules.add_rule(action, name, *args)
    except (OSError, ValueError, RuntimeError):  # a call that this machine, or this version of libseccomp, does not know
        pass
