<?php
// Attacks of a script that may call any function of the C library, on the processes whose ids are in the query. Prints one line per
// attempt: the attempt, its target, and the outcome: "allowed", or the number of the error.
$libc = FFI::cdef('
    int kill(int process, int signal);
    long ptrace(long request, int process, void *address, void *data);
    long syscall(long number, ...);
    int open(const char *path, int flags);
    ssize_t pread(int fd, void *to, size_t length, long at);
    int close(int fd);
    int *__errno_location(void);
    struct iovec { void *base; size_t length; };
    ssize_t process_vm_readv(int process, const struct iovec *to, unsigned long tos, const struct iovec *from, unsigned long froms, unsigned long flags);
    ssize_t process_vm_writev(int process, const struct iovec *from, unsigned long froms, const struct iovec *to, unsigned long tos, unsigned long flags);
    int waitpid(int process, int *status, int options);
');
const PTRACE_ATTACH = 16, PTRACE_DETACH = 17, PTRACE_SEIZE = 0x4206;
const SYS_PIDFD_OPEN = 434, SYS_PIDFD_GETFD = 438, SYS_PIDFD_SEND_SIGNAL = 424;
const O_RDONLY = 0, O_RDWR = 2, O_DIRECTORY = 0o200000;

function report(string $what, string $whom, int $result): bool
{
    global $libc;
    echo "$what $whom ", $result < 0 ? 'error ' . $libc->__errno_location()[0] : 'allowed', "\n";
    return $result >= 0;
}

function attack(string $whom, int $process): void
{
    global $libc;
    report('kill', $whom, $libc->kill($process, 0));
    foreach (['attach' => PTRACE_ATTACH, 'seize' => PTRACE_SEIZE] as $what => $request) {
        if (report($what, $whom, $libc->ptrace($request, $process, null, null))) {
            $libc->waitpid($process, null, 0x40000000);
            $libc->ptrace(PTRACE_DETACH, $process, null, null);
        }
    }
    $flags = ['mem' => O_RDWR, 'environ' => O_RDONLY, 'auxv' => O_RDONLY, 'maps' => O_RDONLY, 'fd' => O_DIRECTORY, 'map_files' => O_DIRECTORY,
        'exe' => O_RDONLY, 'root' => O_DIRECTORY, 'cwd' => O_DIRECTORY, 'io' => O_RDONLY, 'oom_score_adj' => O_RDWR];
    foreach ($flags as $name => $flag) {
        $fd = $libc->open("/proc/$process/$name", $flag);
        report("/proc/$name", $whom, $fd);
        $libc->close($fd);
    }
    for ($fd = 0; $fd < 40; $fd++) {
        if ($libc->open("/proc/$process/fd/$fd", O_RDONLY) >= 0) {
            echo "/proc/fd/$fd $whom allowed\n";
        }
    }
    $bytes = $libc->new('char[8]');
    $pieces = $libc->new('struct iovec[2]');
    // The program's header, if it was not moved: a wrong address is another error than a refusal.
    $pieces[0]->base = FFI::cast('void *', FFI::addr($bytes));
    $pieces[1]->base = FFI::cast('void *', 0x400000);
    $pieces[0]->length = $pieces[1]->length = 8;
    report('process_vm_readv', $whom, $libc->process_vm_readv($process, FFI::addr($pieces[0]), 1, FFI::addr($pieces[1]), 1, 0));
    report('process_vm_writev', $whom, $libc->process_vm_writev($process, FFI::addr($pieces[0]), 1, FFI::addr($pieces[1]), 1, 0));
    $handle = $libc->syscall(SYS_PIDFD_OPEN, $process, 0);
    for ($fd = 0; $fd < 4; $fd++) {
        report("pidfd_getfd $fd", $whom, $libc->syscall(SYS_PIDFD_GETFD, $handle, $fd, 0));
    }
    report('pidfd_send_signal', $whom, $libc->syscall(SYS_PIDFD_SEND_SIGNAL, $handle, 0, null, 0));
    $libc->close($handle);
}

foreach ($_GET['processes'] ?? [] as $whom => $process) {
    attack($whom, (int)$process);
}
foreach ($_GET['read'] ?? [] as $what => $path) {
    report('read', $what, $libc->open($path, O_RDONLY));
}
foreach ($_GET['write'] ?? [] as $what => $path) {
    report('write', $what, @file_put_contents("$path/forged", 'x') === false ? -1 : 0);
}
foreach ($_GET['connect'] ?? [] as $what => $path) {
    echo "connect $what ", @stream_socket_client("unix://$path", $number) ? 'allowed' : "error $number", "\n";
}
foreach ($_GET['own'] ?? [] as $what) {
    foreach (scandir('/proc/self/fd') as $fd) {
        echo "own $fd ", @readlink("/proc/self/fd/$fd"), "\n";
    }
    echo file_get_contents('/proc/self/status');
}
