/**
 * A process that confines itself as a vision process does, tries what is forbidden, and prints the codes of its
 * failures as JSON. Arguments: a model’s file and its projector’s.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, openSync, readFileSync, rmSync, statSync, writeFileSync, writeSync } from 'node:fs';
import { createRequire } from 'node:module';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { getSystemErrorName } from 'node:util';
import { openVision } from '../../engine/llama/vision.js';
import { sourceRoot } from './source-root.js';

const [file = '', projector = ''] = process.argv.slice(2);
const setup = {
  file,
  projector,
  threads: 1,
  maxPixels: 1,
  cacheBytes: 0,
  heartbeatMs: 1000,
  maxAgeMs: 1000,
  gpu: false as const,
};
/**
 * System calls that Node never makes, by name. The owner of a descriptor gets a signal, by choice a deadly one, when there is
 * something to read: here the parent, and no signal is sent.
 */
const CALLS: Readonly<Record<string, string>> = {
  setOwner: 'fcntl(ends[0], F_SETOWN, getppid())',
  setOwnerWide: 'syscall(SYS_fcntl, ends[0], (1ul << 32) | F_SETOWN, getppid())',
  setOwnerOfKind: 'fcntl(ends[0], F_SETOWN_EX, &owner)',
  setSignal: 'fcntl(ends[0], F_SETSIG, SIGURG)',
  controlOwner: 'ioctl(ends[0], FIOSETOWN, &owner.pid)',
  controlGroup: 'ioctl(ends[0], SIOCSPGRP, &owner.pid)',
  controlAsync: 'ioctl(ends[0], FIOASYNC, &off)',
  // A new limit at an address whose lower half is 0.
  setLimit: 'syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, limit, NULL)',
  // These are needed.
  flags: 'fcntl(ends[0], F_GETFL)',
  nonBlocking: 'ioctl(ends[0], FIONBIO, &off)',
  getLimit: 'syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, limit)',
};

/** An addon with a function for each of {@link CALLS}: it returns the number of the error, 0 for none. */
function compiledCalls(): Readonly<Record<string, () => number>> {
  const functions = Object.entries(CALLS).map(
    ([name, call]) => `static napi_value ${name}(napi_env env, napi_callback_info info) {
      struct f_owner_ex owner = {F_OWNER_PID, getppid()};
      int off = 0;
      (void)info, (void)owner, (void)off;
      napi_value code;
      napi_create_int32(env, ${call} < 0 ? errno : 0, &code);
      return code;
    }`,
  );
  const source = `
    #define _GNU_SOURCE
    #include <errno.h>
    #include <fcntl.h>
    #include <linux/sockios.h>
    #include <node_api.h>
    #include <signal.h>
    #include <sys/ioctl.h>
    #include <sys/mman.h>
    #include <sys/resource.h>
    #include <sys/socket.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    static int ends[2];
    static struct rlimit * limit;
    ${functions.join('\n')}
    NAPI_MODULE_INIT() {
      socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
      limit = mmap((void *)(1ul << 40), 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
      getrlimit(RLIMIT_NOFILE, limit);
      napi_property_descriptor all[] = {
        ${Object.keys(CALLS)
          .map((name) => `{"${name}", 0, ${name}, 0, 0, 0, napi_enumerable, 0}`)
          .join(', ')}
      };
      napi_define_properties(env, exports, sizeof all / sizeof all[0], all);
      return exports;
    }`;
  const dir = mkdtempSync(join(tmpdir(), 'ra-confined-'));
  try {
    const file = join(dir, 'calls.node');
    const headers = join(sourceRoot, 'node_modules/node-api-headers/include');
    const asked = ['-x', 'c', '-shared', '-fPIC', '-DNODE_GYP_MODULE_NAME=calls', `-I${headers}`, '-o', file, '-'];
    execFileSync('cc', asked, { input: source, stdio: ['pipe', 'ignore', 'inherit'] });
    return createRequire(import.meta.url)(file) as Readonly<Record<string, () => number>>;
  } finally {
    rmSync(dir, { recursive: true });
  }
}

const calls = compiledCalls();
const vision = await openVision(setup);
const confinement = vision.confine(2 ** 40);

function codeOf(attempt: () => unknown): string {
  try {
    attempt();
    return 'done';
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? 'unknown';
  }
}

function errorOf(number: number): string {
  return number === 0 ? 'done' : getSystemErrorName(-number);
}

const connected = await new Promise<string>((resolve) => {
  const socket = connect({ host: '127.0.0.1', port: 1 });
  socket.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? 'unknown'));
  socket.once('connect', () => resolve('done'));
});

const results = {
  confinement,
  read: codeOf(() => readFileSync('/etc/hostname')),
  projector: codeOf(() => openSync(projector, 'r')),
  write: codeOf(() => writeFileSync('/tmp/ra-confined', 'x')),
  stat: codeOf(() => statSync('/')),
  connected,
  spawned: spawnSync('/bin/true').error?.message.replace(/^.* /, '') ?? 'done',
  signalled: codeOf(() => process.kill(process.ppid, 0)),
  calls: Object.fromEntries(Object.entries(calls).map(([name, call]) => [name, errorOf(call())])),
  itself: codeOf(() => process.kill(process.pid, 0)),
  // Its own task still works, on its own threads.
  layout: vision.layout({ width: 10, height: 10 }).length > 0,
};
writeSync(1, JSON.stringify(results));
process.kill(process.pid, 'SIGKILL');
