// Writes the SBOM of the packed package: what its installation gets, by package-lock.json. Usage, after .ci/package.mjs:
// node .ci/sbom.cjs STAGED_PACKAGE OUTPUT
//
// `npm sbom --omit dev` in the repository is not that: npm 11 leaves out what a development package also depends on (a third of
// all, ajv among them) and aliases, names the package after its folder, and lists backends that the package does not install. So the
// lock file is reduced to what the staged manifest reaches, and npm describes that.
//
// npm knows nothing of our addons (engine/native/bin): they are added with the SHA-256 of each file, and what was compiled into them.
const { execFileSync } = require('node:child_process');
const { createHash } = require('node:crypto');
const { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } = require('node:fs');
const { tmpdir } = require('node:os');
const { join } = require('node:path');

const [stage, output] = process.argv.slice(2);
const read = (path) => JSON.parse(readFileSync(path, 'utf8'));
const manifest = read(join(stage, 'package.json'));
const bundled = manifest.bundleDependencies.map((name) => `node_modules/${name}`);
const { packages, ...lock } = read('package-lock.json');

const { name, version, optionalDependencies } = manifest;
// As in the lock file, where the packages that only the bundled one needs are its own.
const { dependencies } = read('package.json');
const reached = { '': { name, version, dependencies, optionalDependencies } };
const queue = [''];
for (const path of queue) {
  const { dependencies = {}, optionalDependencies = {}, peerDependencies = {} } = reached[path];
  const optional = new Set(Object.keys(optionalDependencies));
  for (const wanted of Object.keys({ ...dependencies, ...optionalDependencies, ...peerDependencies })) {
    const found = resolved(path, wanted);
    if (found === undefined) {
      if (optional.has(wanted) || wanted in peerDependencies) continue;
      throw new Error(`${path || name} needs ${wanted}, which is not in the lock file`);
    }
    if (found in reached) continue;
    const { dev: _dev, ...entry } = packages[found];
    // Of what a bundled package depends on, the staged manifest names what is installed (package.mjs).
    if (bundled.includes(found)) {
      delete entry.optionalDependencies;
      delete entry.peerDependencies;
      entry.dependencies = Object.fromEntries(
        Object.entries(entry.dependencies).filter(([name]) => name in manifest.dependencies),
      );
    }
    reached[found] = entry;
    queue.push(found);
  }
}

/** Where Node finds a package from another: in the nearest node_modules. Undefined if the lock has none. */
function resolved(from, wanted) {
  for (let path = from; ; path = path.replace(/\/?node_modules\/(@[^/]+\/)?[^/]+$/, '')) {
    const place = `${path === '' ? '' : `${path}/`}node_modules/${wanted}`;
    if (place in packages) return place;
    if (path === '') return undefined;
  }
}

/** The addons of engine/native and, nested, what is compiled into each: engine/native/bin/LICENSES.txt has their licences. */
function addons() {
  const folder = join(stage, 'engine/native/bin');
  const { tag } = read('node_modules/node-llama-cpp/llama/llama.cpp.info.json');
  const ofNpm = (name) => ({ type: 'library', name, version: read(`node_modules/${name}/package.json`).version });
  const parts = {
    'ra-engine': [{ type: 'library', name: 'llama.cpp headers', version: tag }],
    'ra-vision': [
      { type: 'library', name: 'libmtmd of llama.cpp', version: tag, purl: `pkg:github/ggml-org/llama.cpp@${tag}` },
      { type: 'library', name: 'stb_image', version: `of llama.cpp ${tag}` },
    ],
  };
  return readdirSync(folder)
    .filter((file) => file.endsWith('.node'))
    .sort()
    .map((file) => ({
      type: 'library',
      'bom-ref': `engine/native/bin/${file}`,
      name: file,
      version,
      licenses: [{ license: { id: manifest.license } }],
      hashes: [
        {
          alg: 'SHA-256',
          content: createHash('sha256')
            .update(readFileSync(join(folder, file)))
            .digest('hex'),
        },
      ],
      components: [...parts[file.split('.')[0]], ofNpm('node-addon-api')],
    }));
}

const dir = mkdtempSync(join(tmpdir(), 'ra-sbom-'));
try {
  // npm names the package after its folder.
  const folder = join(dir, name);
  mkdirSync(folder);
  writeFileSync(
    join(folder, 'package.json'),
    JSON.stringify({ name, version, license: manifest.license, dependencies, optionalDependencies }),
  );
  writeFileSync(join(folder, 'package-lock.json'), JSON.stringify({ ...lock, packages: reached }));
  const how = ['sbom', '--package-lock-only', '--sbom-format', 'cyclonedx'];
  const sbom = JSON.parse(execFileSync('npm', how, { cwd: folder, encoding: 'utf8', maxBuffer: 1 << 26 }));
  const left = Object.keys(reached).length - 1 - new Set(sbom.components.map(({ purl }) => purl)).size;
  sbom.components.push(...addons());
  console.log(`${output}: ${sbom.components.length} packages${left > 0 ? `, ${left} places share a version` : ''}`);
  writeFileSync(output, `${JSON.stringify(sbom, null, 2)}\n`);
} finally {
  rmSync(dir, { recursive: true, force: true });
}
