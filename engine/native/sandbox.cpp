/*
 * What the vision process may still ask of the kernel once it has loaded its files: nothing that opens a file or a socket,
 * starts a program or signals another process. All other system calls fail with EPERM, in all threads, for good.
 *
 * Part of ra-vision, the addon of vision.cpp; engine/llama/vision.ts uses it.
 */
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "napi.h"

#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))
#define RA_SECCOMP 1
#include <cerrno>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace {

#ifdef RA_SECCOMP

#if defined(__x86_64__)
constexpr uint32_t ARCHITECTURE = AUDIT_ARCH_X86_64;
#else
constexpr uint32_t ARCHITECTURE = AUDIT_ARCH_AARCH64;
#endif

#ifndef SYS_clone3
#define SYS_clone3 435
#endif
#ifndef SYS_rseq
#define SYS_rseq (-1)
#endif

// Memory, threads, clocks, and reading and writing what is open. V8 makes code executable, so mprotect has no condition.
// sched_setaffinity has none either, although it takes other processes of the same user: libraries pass it their threads' ids.
constexpr long ALLOWED[] = {
    SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_close, SYS_fstat, SYS_lseek, SYS_pread64,
    SYS_mmap, SYS_mprotect, SYS_munmap, SYS_mremap, SYS_madvise, SYS_brk, SYS_membarrier,
    SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sigaltstack,
    SYS_futex, SYS_set_robust_list, SYS_get_robust_list, SYS_rseq, SYS_set_tid_address,
    SYS_sched_yield, SYS_sched_getaffinity, SYS_sched_setaffinity, SYS_getpriority,
    SYS_clock_gettime, SYS_clock_getres, SYS_clock_nanosleep, SYS_nanosleep, SYS_gettimeofday,
    SYS_getpid, SYS_gettid, SYS_getppid, SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid, SYS_getrandom, SYS_getrusage,
    SYS_sysinfo, SYS_uname, SYS_times, SYS_getcpu, SYS_restart_syscall,
    SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait, SYS_eventfd2, SYS_pipe2, SYS_ppoll, SYS_pselect6, SYS_dup3,
    SYS_recvmsg, SYS_recvfrom, SYS_shutdown, SYS_getsockopt, SYS_getsockname,
    SYS_exit, SYS_exit_group,
#if defined(__x86_64__)
    SYS_epoll_wait, SYS_poll, SYS_select, SYS_time, SYS_arch_prctl, SYS_dup, SYS_pipe,
#endif
};

sock_filter load(uint32_t offset) { return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset); }
sock_filter answer(uint32_t action) { return BPF_STMT(BPF_RET | BPF_K, action); }
// The next `yes` or `no` instructions are skipped.
sock_filter equals(uint32_t value, uint8_t yes, uint8_t no) { return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no); }

constexpr uint32_t NUMBER = offsetof(seccomp_data, nr);
// The lower half of an argument: both architectures are little-endian. The kernel ignores the upper one of an int.
constexpr uint32_t argument(size_t at) { return static_cast<uint32_t>(offsetof(seccomp_data, args) + 8 * at); }
constexpr uint32_t upper_half(size_t at) { return argument(at) + 4; }
constexpr uint32_t DENIED = SECCOMP_RET_ERRNO | EPERM;

// One system call by an argument of 32 bits: `listed` for these values, `others` for all that are not among them.
void decide(std::vector<sock_filter> & code, long number, size_t at, std::initializer_list<uint32_t> values,
            uint32_t listed, uint32_t others) {
    auto left = static_cast<uint8_t>(values.size());
    code.push_back(equals(static_cast<uint32_t>(number), 0, left + 3));
    code.push_back(load(argument(at)));
    for (const uint32_t value : values) code.push_back(equals(value, left--, 0));
    code.push_back(answer(others));
    code.push_back(answer(listed));
}

std::vector<sock_filter> filter_for(uint32_t process) {
    std::vector<sock_filter> code;
    code.push_back(load(offsetof(seccomp_data, arch)));
    code.push_back(equals(ARCHITECTURE, 1, 0));
    code.push_back(answer(SECCOMP_RET_KILL_PROCESS));
    code.push_back(load(NUMBER));
    // The numbers of x32 have this bit, so they equal none of the allowed ones.
    for (const long number : ALLOWED) {
        if (number < 0) continue;
        code.push_back(equals(static_cast<uint32_t>(number), 0, 1));
        code.push_back(answer(SECCOMP_RET_ALLOW));
    }
    // Threads alone; glibc then takes clone in place of clone3, whose flags are not in a register.
    code.push_back(equals(SYS_clone3, 0, 1));
    code.push_back(answer(SECCOMP_RET_ERRNO | ENOSYS));
    code.push_back(equals(SYS_clone, 0, 4));
    code.push_back(load(argument(0)));
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1));
    code.push_back(answer(SECCOMP_RET_ALLOW));
    code.push_back(answer(DENIED));
    // Signals to itself: an assertion raises one, and it ends itself once its parent has ended.
    for (const long number : {SYS_kill, SYS_tgkill}) decide(code, number, 0, {process}, SECCOMP_RET_ALLOW, DENIED);
    // Flags and copies of descriptors. Some other commands name a process that gets a signal when there is something to read.
    decide(code, SYS_fcntl, 1, {F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL, F_SETFL}, SECCOMP_RET_ALLOW, DENIED);
    // Drivers of GPUs have commands of their own, so all are allowed but those for such signals.
    decide(code, SYS_ioctl, 1, {FIOSETOWN, SIOCSPGRP, FIOASYNC}, DENIED, SECCOMP_RET_ALLOW);
    // Names of threads and of memory.
    decide(code, SYS_prctl, 0, {PR_SET_NAME, 0x53564d41 /* PR_SET_VMA */}, SECCOMP_RET_ALLOW, DENIED);
    // Its own limits, read only: process 0, which is itself, and no new value.
    code.push_back(equals(SYS_prlimit64, 0, 8));
    code.push_back(load(argument(2)));
    code.push_back(equals(0, 0, 5));
    code.push_back(load(upper_half(2)));
    code.push_back(equals(0, 0, 3));
    code.push_back(load(argument(0)));
    code.push_back(equals(0, 0, 1));
    code.push_back(answer(SECCOMP_RET_ALLOW));
    code.push_back(answer(DENIED));
    code.push_back(answer(DENIED));
    return code;
}

#endif

// `bytes`: memory that may be written, of the whole process, from now on; 0: no bound. Returns whether the bound and the filter
// are in force.
Napi::Value sandbox(const Napi::CallbackInfo & info) {
    const Napi::Env env = info.Env();
    bool bounded = false;
    bool filtered = false;
#ifdef RA_SECCOMP
    const auto bytes = static_cast<rlim_t>(info[0].As<Napi::Number>().Int64Value());
    if (bytes > 0) {
        const rlimit limit{bytes, bytes};
        bounded = setrlimit(RLIMIT_DATA, &limit) == 0;
    }
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    auto code = filter_for(static_cast<uint32_t>(getpid()));
    sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) {
        filtered = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
    }
#endif
    auto result = Napi::Object::New(env);
    result.Set("bounded", Napi::Boolean::New(env, bounded));
    result.Set("filtered", Napi::Boolean::New(env, filtered));
    return result;
}

} // namespace

// Called by init in vision.cpp.
void raSandboxInit(Napi::Object exports) {
    exports.Set("raSandbox", Napi::Function::New(exports.Env(), sandbox, "raSandbox"));
}
