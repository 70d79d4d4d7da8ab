"""The contract of a sandbox, over every backend that isolates; then what of it the backend `none` keeps."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import resource
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentgym.envs.swe.packages import PACKAGES
from agentgym.envs.swe.sandbox import Backend, Limits, Sandbox, backend
from agentgym.errors import ConfigError, EnvError


def content(tree: Path) -> dict[str, str]:
    """Return what is in a folder of the host."""
    return {
        str(p.relative_to(tree)): os.readlink(p) if p.is_symlink() else p.read_text("utf-8") for p in tree.rglob("*") if p.is_symlink() or p.is_file()
    }


LIST = "find . -mindepth 1 -printf '%y %m %P %l\\n' | sort; find . -type f | sort | xargs -d '\\n' md5sum"


def listing(box: Sandbox) -> str:
    """Return names, modes and content of the whole work tree."""
    return box.run(LIST, output=100_000).output


def python(code: str) -> str:
    """Return a command that runs some Python."""
    return f"python -c \"exec(__import__('base64').b64decode('{base64.b64encode(code.encode()).decode()}'))\""


class TestCommands:
    def test_the_work_tree_is_there_and_belongs_to_the_agent(self, box: Sandbox, tree: Path) -> None:
        done = box.run("pwd; id -u; id -g; cat README.md link 'a b/ü.txt'; ./run.sh; ls -A empty; find . ! -user 1000")
        assert done[:3] == (0, "/testbed\n1000\n1000\n# wörld\n# wörld\nünïcode\nran\n", 0)
        assert not done.timed_out and 0 < done.seconds < 30

    def test_a_change_stays_in_the_sandbox(self, box: Sandbox, tree: Path) -> None:
        before = content(tree)
        box.run("echo x >> README.md; rm pkg/core.py; mkdir new; echo y > new/file; mv 'a b' c; chmod 600 run.sh; rm link; ln -s pkg link")
        assert box.run("cat README.md new/file c/ü.txt; ls link").output == "# wörld\nx\ny\nünïcode\n__init__.py\n"
        assert content(tree) == before and os.access(tree / "run.sh", os.X_OK)

    def test_a_folder_of_the_tree_can_be_renamed(self, box: Sandbox) -> None:
        assert box.run(python("import os; os.rename('pkg', 'renamed')") + " && ls renamed").output == "__init__.py\ncore.py\n"

    def test_status_and_both_streams_in_their_order(self, box: Sandbox) -> None:
        done = box.run("echo one; echo two >&2; echo three; (exit 7)")
        assert (done.code, done.output) == (7, "one\ntwo\nthree\n")
        assert box.run("exit 3").code == 3
        assert box.run("kill -9 $$").code == 137
        assert box.run("kill -SEGV $$").code == 139
        assert box.run("no-such-command").code == 127

    def test_variables(self, engine: Backend, tree: Path) -> None:
        with engine.open(tree, env={"OWN": "one", "HOME": "/testbed"}) as box:
            assert box.run("echo $OWN $HOME $ONCE", env={"ONCE": "tw o"}).output == "one /testbed tw o\n"
            assert box.run("echo $OWN$ONCE").output == "one\n"
            assert box.shell("echo $OWN").output == "one\n"
            assert "SECRET" not in box.run("env", env={}).output

    def test_the_owners_variables_are_not_there(self, box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AGENTGYM_SECRET", "sesame")
        box.reset()
        assert "sesame" not in box.run("env; cat /proc/*/environ").output

    def test_a_command_that_reads_its_input_gets_none(self, box: Sandbox) -> None:
        for do in (box.run, box.shell):
            start = time.monotonic()
            assert do("cat; read x; echo \"[$x] $?\"; python -c 'import sys; print(repr(sys.stdin.read()))'").output == "[] 1\n''\n"
            assert time.monotonic() - start < 20
        assert box.shell("cat <<< here; echo piped | cat").output == "here\npiped\n"

    def test_text_of_any_kind_goes_through(self, box: Sandbox) -> None:
        odd = 'it\'s "quoted" $HOME `x` \\n %s ! * é 🙂 \t'
        quoted = "'" + odd.replace("'", "'\\''") + "'"
        for do in (box.run, box.shell):
            assert do(f"printf '%s|' {quoted}").output == odd + "|"
            assert do("echo a\necho b; # remark\necho c \\\n  d").output == "a\nb\nc d\n"
            assert do("").code == 0 and do("# only a remark").code == 0
            assert do("echo \ud800 > /dev/null").code == 0  # half a surrogate pair, as a model may write it

    def test_a_command_of_a_megabyte(self, box: Sandbox) -> None:
        long = "x" * (1 << 20)
        for do in (box.run, box.shell):
            assert do(f"v='{long}'; echo ${{#v}}").output == f"{1 << 20}\n"

    def test_a_nul_byte_is_the_commands_fault(self, box: Sandbox) -> None:
        for do in (box.run, box.shell):
            done = do("echo a\0b")
            assert done.code == 2 and "NUL" in done.output and "character 7" in done.output
        assert box.shell("echo on").output == "on\n"


class TestShell:
    def test_state_stays(self, box: Sandbox) -> None:
        box.shell('cd pkg; export A=1; B=2; declare -A m=([k]=v); f() { echo "f $1"; }; alias x=y; umask 077; set -u')
        assert box.shell("pwd; echo $A $B ${m[k]}; f 3; umask; env | grep ^A=").output == "/testbed/pkg\n1 2 v\nf 3\n0077\nA=1\n"
        box.shell("false")
        assert box.shell("echo $?").output == "1\n"
        assert box.run("pwd; echo [$A]").output == "/testbed\n[]\n"

    def test_background_jobs_stay(self, box: Sandbox) -> None:
        start = time.monotonic()
        assert box.shell("sleep 60 & echo started").output == "started\n"
        assert time.monotonic() - start < 10
        assert box.shell("jobs -r | wc -l").output == "1\n"
        assert box.shell("kill %1; wait; jobs -r | wc -l").output == "0\n"

    def test_the_end_of_the_shell(self, box: Sandbox) -> None:
        box.shell("A=1")
        done = box.shell("echo bye; exit 4")
        assert done.code == 4 and done.output.startswith("bye\n[the shell ended with status 4") and "new shell" in done.output
        assert box.shell("echo [$A]").output == "[]\n"
        assert box.shell("exec bash -c 'echo other; exit 5'").code == 5
        assert box.shell("set -e; A=2; false; A=3").code == 1
        assert box.shell("kill -9 $$").code == 137
        assert box.shell("echo back").output == "back\n"

    def test_output_of_a_shell_that_ends_is_whole(self, box: Sandbox) -> None:
        for _ in range(5):
            done = box.shell("sleep 30 & seq 2000; exit 3")
            assert done.code == 3 and done.output.startswith("1\n2\n") and "\n2000\n[" in done.output

    @pytest.mark.parametrize(
        "command", ["echo 'one", 'echo "one', "cat <<E\none", "if true; then", "echo $(", "}", "f() {", "case x in", "echo `", "((", ") ) ;;"]
    )
    def test_what_does_not_parse_ends(self, box: Sandbox, command: str) -> None:
        start = time.monotonic()
        for do in (box.shell, box.run):
            done = do(command, timeout=20)
            assert not done.timed_out and (done.code or command.startswith("cat"))
        assert box.shell("echo on").output == "on\n" and time.monotonic() - start < 15

    def test_words_that_leave_loops_and_functions(self, box: Sandbox) -> None:
        box.shell("A=1")
        for command in ("break", "continue", "return 5", "break 9; return", "local x=1", "shift 100", "unset -f __agentgym_no; unset A; A=1"):
            assert not box.shell(command).timed_out
        assert box.shell("echo $A").output == "1\n"

    def test_redirected_and_closed_descriptors(self, box: Sandbox) -> None:
        box.shell("A=1; exec >/dev/null 2>&1; echo lost")
        assert box.shell("echo seen; exec 1>&- 2>&-").output == "seen\n"
        assert box.shell("exec 0<README.md; echo $A").output == "1\n"
        assert box.shell('for i in {3..9} 198 199; do eval "exec $i>&-"; done; cat <&3; echo $A').output.endswith("1\n")
        assert box.shell("exec 3<README.md; cat <&3").output == "# wörld\n"
        assert box.shell("cat <&3; echo $A").output == "1\n"
        assert not box.shell('for i in {0..255}; do eval "exec $i>&-"; done; echo > /tmp/x').timed_out  # with those that bash reads from
        assert box.shell("echo on").output.endswith("on\n")
        assert box.run(python("import os; os.closerange(0, 300); os._exit(6)")).code == 6

    def test_tracing_does_not_show_or_disturb_the_protocol(self, box: Sandbox) -> None:
        assert box.shell("set -xv; echo a").output.endswith("echo a\na\n")
        for _ in range(3):
            assert re.fullmatch(r"(echo b\n)?\+\+ echo b\nb\n", box.shell("echo b").output)
        assert box.shell("set +xv; trap 'echo never' DEBUG ERR EXIT; trap - DEBUG; echo c").output.endswith("c\n")

    def test_output_cannot_look_like_the_end(self, box: Sandbox) -> None:
        lines = "ready\\ngone 0\\n0123456789abcdef0123456789abcdef 0\\n"
        for do in (box.shell, box.run):
            look = "ps -ef 2>/dev/null; cat /proc/[0-9]*/cmdline | tr '\\0' ' '; set | tail -n 5"
            done = do(f"printf '{lines}'; printf '{lines}' >&2; {look}; sleep 0.2; echo last; (exit 9)")
            assert done.code == 9 and done.output.endswith("last\n") and done.output.startswith("ready\ngone 0\n")

    def test_a_hundred_commands_are_not_mixed_up(self, box: Sandbox) -> None:
        for i in range(100):
            word = "x" * (i * 97 % 3000)
            assert box.shell(f"printf %s '{word}'").output == word


class TestTimeout:
    ESCAPES = """
        setsid sleep {n} & nohup sleep {n} >/dev/null 2>&1 & (trap '' TERM INT HUP; sleep {n}) & sleep {n} & disown
        python -c 'import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0: os.execvp("sleep", ["sleep", "{n}"])' &
        sleep {n} & kill -STOP $!; sleep {n}"""

    @pytest.mark.parametrize("how", ["run", "shell"])
    def test_it_ends_all_that_the_command_started(self, box: Sandbox, machine: Any, how: str) -> None:
        number = f"98{secrets.randbelow(10**9)}"  # the arguments of sleep tell its processes from all others on this machine
        start = time.monotonic()
        done = getattr(box, how)(f"echo first; {self.ESCAPES.format(n=number)}", timeout=1.5)
        assert (done.code, done.timed_out) == (None, True) and done.output.startswith("first\n") and "no end after 1.5 s" in done.output
        assert 1.5 <= done.seconds < 12 and time.monotonic() - start < 12
        assert machine.eventually(lambda: not machine.processes(number), 2.0), "processes are left"
        assert box.run("ls /proc | grep -c '^[0-9]'; cat README.md").output.endswith("# wörld\n")

    def test_the_next_command_hears_of_it(self, box: Sandbox) -> None:
        box.shell("cd pkg; A=1")
        assert "new shell" in box.shell("echo x; sleep 50", timeout=0.5).output
        assert box.shell("pwd; echo [$A]").output == "/testbed\n[]\n"
        box.shell("A=1")
        assert box.run("sleep 50", timeout=0.5).timed_out
        assert re.fullmatch(r"\[a new shell: .*took too long\]\n\[\]\n", box.shell("echo [$A]").output)
        assert box.shell("echo [$A]").output == "[]\n"

    def test_files_stay(self, box: Sandbox) -> None:
        box.run("echo kept > kept; echo kept > /tmp/kept; sleep 50", timeout=1)
        assert box.run("cat kept /tmp/kept").output == "kept\nkept\n"

    def test_a_command_that_only_writes(self, box: Sandbox) -> None:
        done = box.shell("yes", timeout=1)
        assert done.timed_out and done.output.startswith("y\ny\n") and done.dropped > 100_000 and done.seconds < 10

    def test_a_reader_that_is_fed_while_nobody_reads(self, box: Sandbox) -> None:
        assert box.shell("kill -STOP $$", timeout=1).timed_out
        assert box.shell("echo on").output.endswith("on\n")

    def test_a_wrong_timeout(self, box: Sandbox) -> None:
        with pytest.raises(EnvError, match="above 0"):
            box.run("true", timeout=0)


class TestOutput:
    def test_a_gigabyte(self, box: Sandbox) -> None:
        before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
        done = box.run("echo start; head -c 1000000000 /dev/zero | tr '\\0' x; echo; echo end", timeout=120)
        assert done.code == 0 and done.output.startswith("start\nxxx") and done.output.endswith("xxx\nend\n")
        assert done.dropped > 999_900_000 and f"{done.dropped:,} bytes left out" in done.output and len(done.output) < 20_100
        assert time.monotonic() - start < 90
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kB

    def test_bytes_that_are_no_text(self, box: Sandbox) -> None:
        done = box.run("head -c 3000 /dev/urandom; printf '\\377\\000end'")
        done.output.encode("utf-8")
        assert done.output.endswith("\ufffd\x00end") and done.dropped == 0

    def test_head_and_tail(self, engine: Backend, tree: Path) -> None:
        with engine.open(tree, limits=Limits(output=200)) as box:
            done = box.run("seq -w 1 100000")
            head, middle, tail = re.split(r"\n(?=\[…)|(?<=…\])\n", done.output)
            assert len(head) == 100 and head.startswith("000001\n") and len(tail) == 100 and tail.endswith("099999\n100000\n")
            assert done.dropped == 700_000 - 200 and f"{done.dropped:,}" in middle
            whole = box.run("seq -w 1 1000", output=10_000)
            assert whole.dropped == 0 and len(whole.output) == 5000
            umlauts = box.run(python("print('ä' * 1000, end='')"))
            assert umlauts.output.startswith("ä" * 100 + "\n[") and umlauts.output.endswith("]\n" + "ä" * 100) and umlauts.dropped == 1600


class TestIsolation:
    def test_no_network(self, box: Sandbox) -> None:
        code = """
import socket
for host in ("1.1.1.1", "10.0.0.1", "169.254.169.254"):
    try: socket.create_connection((host, 80), 3); print("reached", host)
    except OSError as e: print("no", type(e).__name__)
try: socket.getaddrinfo("example.com", 443); print("resolved")
except OSError: print("no name")
server = socket.create_server(("127.0.0.1", 0)); client = socket.create_connection(server.getsockname(), 3); print("loopback")
"""
        done = box.run(python(code) + "; tail -n +3 /proc/net/dev | cut -d: -f1", timeout=60)
        assert re.fullmatch(r"(no OSError\n){3}no name\nloopback\n *lo\n", done.output)

    def test_no_rights(self, box: Sandbox) -> None:
        status = dict(line.split(":\t") for line in box.run("cat /proc/self/status").output.splitlines())
        assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {"0" * 16}
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        code = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def tried(what, result): print(what, result, ctypes.get_errno() if result < 0 else "")
tried("mount", libc.mount(b"none", b"/tmp", b"tmpfs", 0, None))
tried("user namespace", libc.unshare(0x10000000))
tried("mount namespace", libc.unshare(0x20000))
tried("keyctl", libc.syscall(250, 0, -3, 0))
tried("bpf", libc.syscall(321, 0, 0, 0))
tried("perf", libc.syscall(298, 0, 0, -1, -1, 0))
tried("chroot", libc.chroot(b"/tmp"))
tried("setuid", libc.setuid(0))
"""
        output = box.run(python(code)).output
        assert len(output.splitlines()) == 8 and all(re.search(r" -1 (1|38|22)$", line) for line in output.splitlines()), output

    def test_only_the_work_tree_and_tmp_can_be_written(self, box: Sandbox) -> None:
        assert (
            box.run("for d in / /usr /usr/bin /etc /opt/python /dev /root /proc /var; do touch $d/x 2>/dev/null && echo wrote $d; done").output == ""
        )
        assert box.run("touch x /tmp/x /dev/shm/x && echo yes > /dev/null && df /tmp > /dev/null").code == 0

    def test_nothing_of_the_host(self, box: Sandbox, tmp_path: Path) -> None:
        secret = tmp_path / "secret"
        secret.write_text("sesame", "utf-8")
        box.run(f"ln -s {secret} out; ln -s /etc/shadow shadow; ln -s {tmp_path} folder")
        assert "sesame" not in box.run(f"cat out {secret}; ls -la {tmp_path} folder; cat shadow").output
        with pytest.raises(OSError):
            box.read("out")
        with pytest.raises(OSError):
            box.write("folder/new", b"x")
        assert sorted(os.listdir(tmp_path)) == ["secret"]
        here = Path(__file__).resolve().parents[3]
        assert box.run(f"find {here} {sys.prefix} /root /home -type f 2>/dev/null | grep -v /libpython").output == ""

    def test_the_hosts_processes_are_not_seen(self, box: Sandbox) -> None:
        assert int(box.run("ls /proc | grep -c '^[0-9]'").output) < 12
        assert box.run(f"kill -0 {os.getpid()} 2>/dev/null && grep -c pytest /proc/{os.getpid()}/cmdline").output == ""

    def test_the_tools_are_there(self, box: Sandbox) -> None:
        assert (
            box.run(
                "for t in bash git grep sed find patch diff python python3 pytest tar awk ps xargs; do command -v $t >/dev/null || echo no $t; done"
            ).output
            == ""
        )
        assert (
            box.run(
                "git init -q . && git add -A && git -c user.name=a -c user.email=b commit -qm one && echo x >> README.md && git diff --stat | cat"
            ).code
            == 0
        )

    def test_the_owners_python_with_pytest_and_nothing_else(self, box: Sandbox) -> None:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        code = "import sys, ssl, sqlite3, ctypes, lzma, unittest, test.support, pytest, pluggy; print('%d.%d' % sys.version_info[:2])"
        assert box.run(f'python -c "{code}"').output == f"{version}\n"
        modules = box.run("""python -c "
import pkgutil, sys
print(sorted(m.name for m in pkgutil.iter_modules() if 'site-packages' in str(m.module_finder)))" """).output
        assert modules == "['_pytest', 'iniconfig', 'packaging', 'pluggy', 'py', 'pygments', 'pytest']\n"
        assert (
            box.run("find / -name site-packages -o -name dist-packages 2>/dev/null | xargs -I{} ls {} | grep -ciE 'numpy|torch|agentgym|yaml'").output
            == "0\n"
        )
        box.write("test_it.py", b"from pkg.core import double\ndef test_it(): assert double(2) == 4\ndef test_no(): assert double(2) == 5\n")
        done = box.run("pytest -q test_it.py; python -m pytest -q test_it.py -k 'not no'", timeout=120)
        assert done.code == 0 and "1 failed, 1 passed" in done.output and "DeprecationWarning" not in done.output

    def test_no_copy_of_a_tasks_package(self, box: Sandbox) -> None:
        """Programs bring Python packages of their own; one may be the very package that a task is about."""
        names = sorted({Path(source).stem for package in PACKAGES.values() for source in package.sources})
        looks = " -o ".join([*(f"-path '*/{n}/__init__.py'" for n in names), *(f"-name {n}.py" for n in names if n != "parse")])  # urllib.parse
        found = box.run(f"find / -path /proc -prune -o -path {box.tree} -prune -o \\( {looks} \\) -print 2>/dev/null").output.split()  # type: ignore[attr-defined]
        assert found == []
        assert box.run("touch /usr/x /usr/lib/x; ls /usr/x /usr/lib/x").code != 0

    def test_the_first_process_is_out_of_reach(self, box: Sandbox) -> None:
        box.run("for p in 1 $(ls /proc | grep '^[0-9]'); do for s in TERM INT HUP STOP USR1 KILL; do kill -$s $p 2>/dev/null; done; done", timeout=20)
        assert box.run("cat /proc/1/environ /proc/1/mem 2>/dev/null | wc -c; ls -l /proc/1/fd 2>/dev/null | wc -l").output.split() in (
            ["0", "0"],
            ["0", "1"],
        )
        code = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
print(libc.ptrace(16, 1, 0, 0), libc.process_vm_readv(1, None, 0, None, 0, 0) if 0 else -1)
import resource
try: resource.prlimit(1, resource.RLIMIT_NOFILE, (3, 3)); print("limited")
except OSError: print("refused")
"""
        assert box.run(python(code)).output == "-1 -1\nrefused\n"
        assert box.run("echo on").output == "on\n"

    def test_kill_minus_one(self, box: Sandbox) -> None:
        box.run("echo kept > kept; echo kept > /tmp/kept")
        box.shell("A=1")
        assert not box.run("sleep 60 & kill -9 -1; kill -9 $$", timeout=10).timed_out
        assert not box.shell("kill -9 -1; kill -9 $$", timeout=10).timed_out
        assert box.shell("cat kept /tmp/kept").output.endswith("kept\nkept\n")
        assert box.read("kept") == b"kept\n"
        box.write("more", b"x")


class TestLimits:
    def test_a_fork_bomb(self, box: Sandbox, machine: Any) -> None:
        word = f"bomb{secrets.token_hex(6)}"
        box.write("bomb.sh", f"# {word}\n:() {{ : | : & }}; :; sleep 20\n".encode())
        start = time.monotonic()
        done = box.shell(f"bash bomb.sh {word}", timeout=3)
        assert len(machine.processes(word)) < 80
        assert box.shell("echo alive", timeout=30).output.endswith("alive\n")
        assert box.run("echo alive", timeout=30).output.endswith("alive\n")
        box.reset()
        assert done.seconds < 25 and time.monotonic() - start < 60
        assert not machine.processes(word)

    def test_a_bomb_in_the_background_does_not_keep_the_next_command_out(self, box: Sandbox) -> None:
        box.run(python("import os, time\nwhile True:\n  try:\n    if os.fork() == 0: time.sleep(60)\n  except OSError: break"), timeout=20)
        done = box.run("echo alive", timeout=20)
        assert done.timed_out or done.output.endswith("alive\n")
        assert box.run("echo again", timeout=20).output.endswith("again\n")

    def test_the_number_of_processes(self, box: Sandbox) -> None:
        code = """
import os, time, threading
n = 0
try:
    while n < 500:
        threading.Thread(target=time.sleep, args=(20,), daemon=True).start(); n += 1
except RuntimeError: pass
print(n, flush=True); os._exit(0)
"""
        assert 40 < int(box.run(python(code)).output) < 80

    def test_memory_of_one_process(self, box: Sandbox) -> None:
        done = box.run(python("x = bytearray(400 << 20); x[::4096] = b'1' * len(x[::4096]); print('fits')"))
        assert done.output == "fits\n"
        done = box.run(python("x = bytearray(800 << 20); x[::4096] = b'1' * len(x[::4096]); print('fits')"), timeout=60)
        assert done.code in (1, 137) and "fits" not in done.output
        assert box.shell("echo alive").output.endswith("alive\n")

    def test_memory_of_many_processes(self, box: Sandbox, engine: Backend) -> None:
        if "control group" not in engine.describe()["memory"]:
            pytest.skip(f"memory of all processes together is not limited here: {engine.describe()['memory']}")
        one = python("import time; x = bytearray(200 << 20); x[::4096] = b'1' * len(x[::4096]); time.sleep(2); print('fits')")
        done = box.run("; ".join(f"{one} &" for _ in range(5)) + " wait", timeout=60)
        assert done.output.count("fits\n") < 5
        assert box.run("echo alive").output.endswith("alive\n") and box.read("README.md")

    def test_memory_in_tmp_counts(self, engine: Backend, tree: Path) -> None:
        if "control group" not in engine.describe()["memory"]:
            pytest.skip(f"memory in /tmp is not limited here: {engine.describe()['memory']}")
        with engine.open(tree, limits=Limits(memory_mb=360, disk_mb=128)) as box:
            box.run("head -c 300M /dev/zero > big; head -c 150M /dev/zero > /tmp/big; head -c 100M /dev/zero > /dev/shm/big", timeout=60)
            assert box.run("echo alive; du -m --total big /tmp/big /dev/shm/big | tail -n 1").output in [
                f"alive\n{n}\ttotal\n" for n in (254, 255, 256, 257)
            ]
            assert "fits" not in box.run(python("x = bytearray(250 << 20); x[::4096] = b'1' * len(x[::4096]); print('fits')")).output
            assert box.shell("echo alive").output.endswith("alive\n")
            box.reset()
            assert box.run("cat README.md; ls /tmp").output == "# wörld\n"

    def test_memory_that_outlives_its_processes(self, box: Sandbox) -> None:
        code = """
import ctypes
libc = ctypes.CDLL(None)
for i in range(20):
    number = libc.shmget(0, 60 << 20, 0o1600)
    libc.shmat.restype = ctypes.c_void_p
    if number >= 0: ctypes.memset(libc.shmat(number, None, 0), 1, 60 << 20)
"""
        box.run(python(code), timeout=60)
        assert box.run(python("x = bytearray(350 << 20); x[::4096] = b'1' * len(x[::4096]); print('fits')")).output.endswith("fits\n")

    @pytest.mark.parametrize("place", ["big", "/tmp/big"])
    def test_a_full_disk(self, box: Sandbox, place: str) -> None:
        done = box.run(f"head -c 200M /dev/zero > {place}", timeout=60)
        assert done.code and ("No space left" in done.output or done.code == 153)
        assert 20 << 20 < int(box.run(f"stat -c %s {place}").output) <= 66 << 20
        with pytest.raises(OSError, match="No space left") as error:
            box.write(place + "2", b"x" * (5 << 20))
        assert error.value.errno == 28
        assert box.shell("echo alive; cat README.md").output.endswith("alive\n# wörld\n")
        box.reset()
        box.write(place + "2", b"x" * (5 << 20))

    def test_many_small_files_count(self, box: Sandbox) -> None:
        done = box.run(python("for i in range(100000):\n  with open(f'f{i}', 'w') as f: f.write('x' * 4000)"), timeout=60)
        assert done.code == 1 and "No space left" in done.output
        box.reset()
        done = box.run(python("for i in range(1000000): open(f'f{i}', 'w').close()"), timeout=120)
        assert done.code == 1 and "No space left" in done.output
        box.reset()
        assert box.run("ls | wc -l").output == "6\n"

    def test_the_processor(self, engine: Backend, tree: Path) -> None:
        if "control group" not in engine.describe()["cpus"]:
            pytest.skip(f"parts of a core are not limited here: {engine.describe()['cpus']}")
        busy = python("import time\nend = time.time() + 2\nwhile time.time() < end: pass\nprint(time.process_time())")
        with engine.open(tree, limits=Limits(cpus=0.4)) as box:
            used = sum(map(float, box.run(f"{busy} & {busy} & wait", timeout=60).output.split()))
        assert 0 < used < 1.6  # two processes for two seconds would be four

    def test_limits_that_make_no_sense(self) -> None:
        for wrong in (
            {"memory_mb": 1},
            {"pids": 0},
            {"cpus": 0},
            {"disk_mb": -1},
            {"output": 1},
            {"pids": 2.5},
            {"cpus": float("nan")},
            {"pids": True},
            {"memory_mb": 512, "disk_mb": 512},
        ):
            with pytest.raises(ConfigError, match=next(iter(wrong))):
                Limits(**wrong)  # type: ignore[arg-type]


class TestFiles:
    @pytest.mark.parametrize("path", ["new", "/testbed/new", "deep/er/new", "sp ace/ü 'quote\" $x *\n/new", "/tmp/new", "-dash", "pkg/core.py"])
    def test_written_and_read(self, box: Sandbox, path: str) -> None:
        for data in (b"", b"text\n", bytes(range(256)) * 50, b"short"):
            box.write(path, data)
            assert box.read(path) == data
        assert box.read(path, 3) == b"sho" and box.read(path, 0) == b""

    def test_large_ones(self, box: Sandbox) -> None:
        data = secrets.token_bytes(3 << 20)
        box.write("large", data)
        assert hashlib.md5(box.read("large", 4 << 20)).digest() == hashlib.md5(data).digest()
        assert len(box.read("large")) == 1 << 20
        assert box.run("md5sum large | cut -d' ' -f1; stat -c '%u %a' large").output == f"{hashlib.md5(data).hexdigest()}\n1000 644\n"

    def test_the_mode_of_a_file_that_is_there_stays(self, box: Sandbox) -> None:
        box.write("run.sh", b"#!/bin/sh\necho other\n")
        assert box.run("./run.sh").output == "other\n"

    @pytest.mark.parametrize(
        ("path", "error"),
        [
            ("none", FileNotFoundError),
            ("pkg", IsADirectoryError),
            ("README.md/x", NotADirectoryError),
            ("secret", PermissionError),
            ("closed/x", PermissionError),
            ("loop", OSError),
            ("pipe", OSError),
            ("nul\0", OSError),
            ("x" * 300, OSError),
        ],
    )
    def test_what_cannot_be_read(self, box: Sandbox, path: str, error: type[OSError]) -> None:
        box.run("echo x > secret; chmod 000 secret; mkdir closed; echo x > closed/x; chmod 000 closed; ln -s loop loop; mkfifo pipe")
        start = time.monotonic()
        with pytest.raises(error):
            box.read(path)
        assert time.monotonic() - start < 10

    @pytest.mark.parametrize(
        ("path", "error"),
        [
            ("pkg", IsADirectoryError),
            ("README.md/x", OSError),
            ("secret", PermissionError),
            ("closed/x", PermissionError),
            ("/usr/x", OSError),
            ("/etc/passwd", OSError),
            ("pipe", OSError),
            ("loop", OSError),
            ("/dev/full", OSError),
        ],
    )
    @pytest.mark.parametrize("size", [5, 1 << 19])
    def test_what_cannot_be_written(self, box: Sandbox, path: str, error: type[OSError], size: int) -> None:
        box.run("echo x > secret; chmod 000 secret; mkdir closed; chmod 000 closed; ln -s loop loop; mkfifo pipe")
        start = time.monotonic()
        with pytest.raises(error):
            box.write(path, b"x" * size)
        assert time.monotonic() - start < 10
        assert box.run("cat README.md").output == "# wörld\n"

    def test_content_is_not_run(self, box: Sandbox) -> None:
        for size in (100, 1 << 20):
            box.write("script", (b"\ntouch /tmp/ran; exit 1\n'\"$(touch /tmp/ran)" * size)[:size])
        assert box.run("ls /tmp").output == ""

    def test_reading_goes_on_after_the_helpers_were_killed(self, box: Sandbox) -> None:
        box.read("README.md")
        box.run("kill -9 -1")
        assert box.read("README.md") == "# wörld\n".encode()


class TestReset:
    MESS = """
        echo x >> README.md; rm -r pkg; mkdir -p pkg/sub; echo y > pkg/sub/z; mv 'a b' moved; chmod 000 moved; rm link; ln -s /etc link
        ln run.sh hard; chmod 400 run.sh; mkdir -p locked/in; echo x > locked/in/x; chmod 500 locked; touch -- '-rf' $'new\\nline' 'sp ace' '*'
        mkfifo pipe; rmdir empty; echo x > empty; git init -q .; echo x > /tmp/x; echo x > /dev/shm/x; touch -d 1999-01-01 pkg"""
    DEEP = "for i in range(300): os.mkdir('d' * 100); os.chdir('d' * 100)"

    def test_it_brings_back_the_clean_tree(self, box: Sandbox) -> None:
        before = listing(box)
        for _ in range(2):
            box.run(self.MESS)
            box.run(python(f"import os\n{self.DEEP}"))
            assert listing(box) != before
            box.reset()
            assert listing(box) == before
        assert box.run("ls -A /tmp /dev/shm").output == "/dev/shm:\n\n/tmp:\n"

    def test_it_ends_all_that_runs(self, box: Sandbox, machine: Any) -> None:
        number = f"97{secrets.randbelow(10**9)}"
        box.shell(f"cd pkg; A=1; setsid sleep {number} & (while true; do echo x > /testbed/again; done) &")
        assert machine.eventually(lambda: bool(machine.processes(number)))
        box.reset()
        assert not machine.processes(number)
        assert box.shell("pwd; echo [$A]; ls again").output.startswith("/testbed\n[]\nls:")

    def test_snapshots(self, box: Sandbox, engine: Backend, tree: Path) -> None:
        with engine.open(tree, limits=Limits(disk_mb=64)) as own:
            own.run(self.MESS + "\nchmod 755 moved")
            own.snapshot()
            first = listing(own)
            own.run("rm -rf pkg moved README.md; echo one > one; chmod 700 locked")
            own.reset()
            assert listing(own) == first
            own.run("echo two > two; rm -rf pkg")
            own.snapshot()
            own.snapshot()
            second = listing(own)
            assert second != first
            own.run("rm -rf *; echo three > three")
            own.reset()
            assert listing(own) == second
        assert "two" not in listing(box)

    def test_it_takes_less_than_a_second(self, engine: Backend, tmp_path: Path) -> None:
        for i in range(5000):
            file = tmp_path / f"d{i % 50}" / f"e{i % 250}" / f"f{i}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"x = 1\n" * (i % 2000))
        with engine.open(tmp_path) as box:
            seconds = [9.0]
            share = 1.0
            while min(seconds) >= share and len(seconds) < 12:
                share = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))  # more seconds, where others want the cores too
                box.run("rm -rf d1 d2; mv d3 e3; for f in d4/*/*; do echo x >> $f; done; for i in {1..300}; do echo > new$i; done")
                start = time.monotonic()
                box.reset()
                seconds.append(time.monotonic() - start)
                assert box.run("find . -type f | wc -l; ls | wc -l").output == "5000\n50\n"
        assert min(seconds) < share


class TestEnd:
    def test_a_closed_sandbox(self, engine: Backend, tree: Path, machine: Any) -> None:
        number = f"96{secrets.randbelow(10**9)}"
        box = engine.open(tree)
        box.shell(f"setsid sleep {number} &")
        mine = [name for name in machine.left_of(os.getpid())]
        box.close()
        box.close()
        assert len(machine.left_of(os.getpid())) < len(mine) and not machine.processes(number)
        for use in (lambda: box.run("true"), lambda: box.shell("true"), lambda: box.read("x"), lambda: box.write("x", b""), box.reset, box.snapshot):
            with pytest.raises(EnvError, match="closed"):
                use()

    def test_closing_does_not_wait_for_a_command(self, engine: Backend, tree: Path) -> None:
        import threading

        box = engine.open(tree)
        seen: list[object] = []

        def work() -> None:
            try:
                seen.append(box.run("sleep 100", timeout=200))
            except EnvError as e:
                seen.append(e)

        thread = threading.Thread(target=work)
        thread.start()
        time.sleep(1)
        start = time.monotonic()
        box.close()
        thread.join(20)
        assert time.monotonic() - start < 20 and isinstance(seen[0], EnvError)

    def test_no_descriptors_are_left(self, engine: Backend, tree: Path) -> None:
        def once() -> None:
            with engine.open(tree) as box:
                box.shell("sleep 100 & echo x")
                box.run("exit 3")
                box.run("sleep 100", timeout=0.2)
                box.write("x", box.read("README.md"))
                box.reset()

        once()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            once()
        assert len(os.listdir("/proc/self/fd")) <= before

    def test_a_tree_that_is_none(self, engine: Backend, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="no folder"):
            engine.open(tmp_path / "none")
        with pytest.raises(ConfigError):
            engine.open(None)


@pytest.fixture
def plain(tree: Path) -> Iterator[Sandbox]:
    """The backend `none`."""
    with pytest.warns(UserWarning, match="run as you"):
        kind = backend("none")
    with kind.open(tree) as sandbox:
        yield sandbox


class TestNone:
    """What the backend without isolation keeps. Nothing here may harm this machine."""

    def test_commands_and_shell(self, plain: Sandbox, tree: Path) -> None:
        before = content(tree)
        assert plain.run("cat README.md; echo x > README.md; exit 3")[:2] == (3, "# wörld\n")
        plain.shell("cd pkg; A=1")
        assert plain.shell("echo $A; basename $PWD").output == "1\npkg\n"
        assert plain.shell("exit 4").code == 4
        assert plain.shell("cat").output == "" and content(tree) == before

    def test_files(self, plain: Sandbox) -> None:
        plain.write("/testbed/a/b", b"x")
        assert plain.read("a/b") == b"x" and plain.run("cat a/b").output == "x"
        with pytest.raises(FileNotFoundError):
            plain.read("none")

    def test_reset_and_snapshot(self, plain: Sandbox) -> None:
        before = listing(plain)
        plain.run("rm -r pkg; mkdir locked; touch locked/x; chmod 500 locked")
        plain.reset()
        assert listing(plain) == before
        plain.run("echo kept > kept")
        plain.snapshot()
        plain.run("rm kept")
        plain.reset()
        assert plain.run("cat kept").output == "kept\n"

    @pytest.mark.parametrize("how", ["run", "shell"])
    def test_timeout(self, plain: Sandbox, machine: Any, how: str) -> None:
        number = f"95{secrets.randbelow(10**9)}"
        done = getattr(plain, how)(TestTimeout.ESCAPES.format(n=number), timeout=1)
        assert done.timed_out and machine.eventually(lambda: not machine.processes(number), 2.0)
        assert plain.shell("echo on").output.endswith("on\n")

    def test_its_end(self, plain: Sandbox, machine: Any, wait: Callable[[], None] = lambda: None) -> None:
        number = f"94{secrets.randbelow(10**9)}"
        plain.shell(f"setsid sleep {number} &")
        place = Path(plain.tree)  # type: ignore[attr-defined]
        assert place.is_dir()
        plain.close()
        assert not place.exists() and machine.eventually(lambda: not machine.processes(number))
