import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { CertificateFiles, checkPair } from '../../../sidecar/lib/certificate-files.js';
import { FileProblem } from '../../../sidecar/lib/checked-file.js';
import { FakeClock } from '../../support/fake-clock.js';
import { LOCKED_KEY, testPair } from '../../support/certificates.js';

const [a, b] = [testPair('a'), testPair('b')];
const PATHS = { key: 'the.key', certificate: 'the.crt' };

function problemOf(key: string, certificate: string): string {
  try {
    checkPair(key, certificate, PATHS);
  } catch (error) {
    if (error instanceof FileProblem) return error.message;
    throw error;
  }
  return 'none';
}

t.test('a pair that cannot be used is reported in one line that names the file and quotes nothing of it', async (t) => {
  const cases: readonly (readonly [string, string, RegExp])[] = [
    [a.key, b.cert, /^tls\.certFile: is not the certificate of the key in tls\.keyFile \(file the\.crt\)$/],
    ['no key', a.cert, /^tls\.keyFile: must be an unencrypted private key in PEM \(file the\.key\)$/],
    [readFileSync(LOCKED_KEY, 'utf8'), a.cert, /^tls\.keyFile: must be an unencrypted private key/],
    [a.key, 'no certificate', /^tls\.certFile: must be a certificate in PEM \(file the\.crt\)$/],
    [a.key, a.key, /^tls\.certFile: must be a certificate in PEM/],
    [
      a.key,
      `${a.cert}-----BEGIN CERTIFICATE-----\nQQ==\n-----END CERTIFICATE-----\n`,
      /^tls\.certFile: cannot be used/,
    ],
  ];
  for (const [key, certificate, expected] of cases) {
    const problem = problemOf(key, certificate);
    t.match(problem, expected);
    t.notMatch(problem, /BEGIN|\n/);
  }
  t.equal(problemOf(a.key, a.cert), 'none');
});

t.test('the certificate in force', async (t) => {
  const { fingerprint, notAfter } = checkPair(a.key, a.cert, PATHS);
  t.match(fingerprint, /^[0-9A-F]{2}(:[0-9A-F]{2}){31}$/);
  t.ok(notAfter.getUTCFullYear() > 2100);
});

interface Followed {
  readonly files: CertificateFiles;
  readonly clock: FakeClock;
  readonly put: (key: string, cert: string) => Promise<void>;
  readonly seen: string[];
  /** Whether what changed can be put in force. */
  readonly works: { value: boolean };
}

async function follow(t: Test): Promise<Followed> {
  const dir = mkdtempSync(join(tmpdir(), 'ra-pair-'));
  const clock = new FakeClock();
  const [keyFile, certFile] = [join(dir, 'key.pem'), join(dir, 'cert.pem')];
  copyFileSync(a.keyFile, keyFile);
  copyFileSync(a.certFile, certFile);
  const seen: string[] = [];
  const works = { value: true };
  const files = await CertificateFiles.open({ keyFile, certFile }, clock, {
    changed: ({ fingerprint }) => {
      seen.push(fingerprint);
      return works.value;
    },
    unusable: (why) => seen.push(why),
  });
  t.teardown(() => {
    files.close();
    rmSync(dir, { recursive: true, force: true });
  });
  const put = async (key: string, cert: string): Promise<void> => {
    writeFileSync(keyFile, key);
    writeFileSync(certFile, cert);
    await files.reload();
  };
  return { files, clock, put, seen, works };
}

t.test('a renewed pair is used a second after its files changed', async (t) => {
  const { files, clock, put, seen } = await follow(t);
  const before = files.inForce.fingerprint;
  await put(b.key, b.cert);
  t.strictSame(seen, [], 'the other file may not have been written yet');
  clock.advance(1000);
  t.strictSame(seen, [checkPair(b.key, b.cert, PATHS).fingerprint]);
  t.not(files.inForce.fingerprint, before);
});

t.test('while a pair does not fit the previous one stays, until it fits', async (t) => {
  const { files, clock, put, seen } = await follow(t);
  const before = files.inForce.fingerprint;
  await put(b.key, a.cert);
  clock.advance(1000);
  t.match(seen, [/is not the certificate of the key/]);
  t.equal(files.inForce.fingerprint, before);
  await put(b.key, b.cert);
  clock.advance(1000);
  t.equal(seen.length, 2);
  t.not(files.inForce.fingerprint, before);
});

t.test('a chain that changed is used, though the certificate is the same', async (t) => {
  const { files, clock, put, seen } = await follow(t);
  await put(a.key, a.cert + b.cert);
  clock.advance(1000);
  t.strictSame(seen, [files.inForce.fingerprint]);
});

t.test('a pair that could not be put in force is offered again at a reload', async (t) => {
  const { files, clock, put, seen, works } = await follow(t);
  works.value = false;
  await put(b.key, b.cert);
  clock.advance(1000);
  works.value = true;
  for (let i = 0; i < 2; i += 1) {
    await files.reload();
    clock.advance(1000);
  }
  t.equal(seen.length, 2, 'once more, and then it is in force');
});

t.test('files that are read again unchanged renew nothing', async (t) => {
  const { clock, put, seen } = await follow(t);
  await put(a.key, a.cert);
  clock.advance(1000);
  t.strictSame(seen, []);
});
