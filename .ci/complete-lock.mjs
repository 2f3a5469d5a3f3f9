// Completes package-lock.json after `npm install` on a registry that does not carry every platform's binaries: npm leaves
// optional packages it cannot look up out of the lock, and `npm ci` then refuses the lock. An entry with its os and cpu is
// enough: elsewhere npm skips it without asking for it. Usage: node .ci/complete-lock.mjs [package-lock.json]
import { readFileSync, writeFileSync } from 'node:fs';

const file = process.argv[2] ?? 'package-lock.json';
const lock = JSON.parse(readFileSync(file, 'utf8'));
const OS = {
  mac: 'darwin',
  darwin: 'darwin',
  win: 'win32',
  win32: 'win32',
  linux: 'linux',
  freebsd: 'freebsd',
  android: 'android',
};
const CPU = ['arm64', 'x64', 'ia32', 'riscv64', 'armv7l', 'arm'];

for (const [path, { optionalDependencies = {} }] of Object.entries(lock.packages)) {
  for (const [name, version] of Object.entries(optionalDependencies)) {
    // Two versions of one library may want two versions of a binary: the second lies within its library.
    const places = [`${path}/node_modules/${name}`, `node_modules/${name}`];
    if (places.some((place) => satisfied(lock.packages[place], version))) continue;
    const place = places[1] in lock.packages ? places[0] : places[1];
    const parts = name.split(/[/-]/);
    const os = parts.map((part) => OS[part]).find(Boolean);
    const cpu = CPU.find((known) => parts.includes(known));
    if (!os || !cpu) throw new Error(`cannot tell the platform of ${name}`);
    lock.packages[place] = {
      version,
      cpu: [cpu === 'armv7l' ? 'arm' : cpu],
      optional: true,
      os: [os],
    };
    console.log(`${name}@${version}: ${os} ${cpu}`);
  }
}

// A range is not looked into: npm has put the version that it resolved there.
function satisfied(entry, wanted) {
  return entry !== undefined && (!/^\d/.test(wanted) || entry.version === wanted);
}

const { '': root, ...rest } = lock.packages;
const sorted = Object.fromEntries(Object.entries(rest).sort(([a], [b]) => (a < b ? -1 : 1)));
writeFileSync(file, `${JSON.stringify({ ...lock, packages: { '': root, ...sorted } }, null, 2)}\n`);
